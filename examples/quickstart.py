"""Two clients, two prompts each, learned side by side through unbalanced optimal transport.

    python examples/quickstart.py

The backbone is a tiny CLIP with random weights and the images are drawn here, so nothing is downloaded and the
whole run takes seconds. What it shows is the method at work: each image has one block of its class's colour in noise;
the clients hold different classes; every round averages the global prompts and keeps the local ones.
"""

import torch

from fedotp.clip import CLIP, TINY, ImageFeatures
from fedotp.matching import Matching, cross_entropy, similarity
from fedotp.ot import solve
from fedotp.prompts import PromptEncoder, random_context

CLASSES = ["red", "green", "blue", "yellow"]
COLOURS = torch.tensor([[3.0, -2, -2], [-2, 3, -2], [-2, -2, 3], [3, 3, -2]])
CLIENTS = [(0, 1), (2, 3)]  # the labels each client holds
ROUNDS, LOCAL_STEPS, IMAGES, LR = 15, 5, 64, 0.05


def draw(labels: torch.Tensor, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Images (B, 3, 32, 32): a 2 x 2 block of patches of the class's colour, on noise. Also the block (B, 4, 4)."""
    images = 0.3 * torch.randn(len(labels), 3, 32, 32, generator=generator)
    blocks = torch.zeros(len(labels), 4, 4)
    corners = torch.randint(0, 3, (len(labels), 2), generator=generator)
    for image, block, label, (row, column) in zip(images, blocks, labels, corners, strict=True):
        image[:, 8 * row : 8 * row + 16, 8 * column : 8 * column + 16] = COLOURS[label][:, None, None]
        block[row : row + 2, column : column + 2] = 1
    return images, blocks


def main() -> None:
    """Train, then show accuracy and where the prompts look."""
    generator = torch.Generator().manual_seed(0)
    clip = CLIP.random(TINY)
    encode = PromptEncoder(clip, CLASSES, n_ctx=4)
    match = Matching(rule="unbalanced", reg=0.1, mass=0.5)

    # Every image is encoded once: the tower is frozen.
    labels = torch.tensor([[c[i % 2] for i in range(IMAGES)] for c in CLIENTS])  # (C, B)
    images, blocks = draw(labels.flatten(), generator)
    flat = clip.encode_image(images)
    features = ImageFeatures(*(x.unflatten(0, labels.shape) for x in flat))

    start = random_context(clip, n_prompts=2, n_ctx=4, n_clients=len(CLIENTS), std=0.1)
    shared, private = start[:, :1], start[:, 1:]  # P_g and P_l, (C, 1, s, d) each
    print(f"{'round':>5}  {'loss of each client':<22} training accuracy of each client")
    for round_ in range(ROUNDS + 1):
        shared, private = (x.clone().requires_grad_() for x in (shared, private))
        for step in range(LOCAL_STEPS):  # all clients at once, along the client axis
            scores = match(features, encode(torch.cat([shared, private], dim=1)))  # (C, B, K)
            loss = cross_entropy(scores, labels, clip.logit_scale)  # (C,)
            if step == 0 and round_ % 3 == 0:
                accuracy = (scores.argmax(-1) == labels).float().mean(1)
                print(f"{round_:>5}  {_row(loss, '.3f'):<22} {_row(accuracy, '.0%')}")
            gradients = torch.autograd.grad(loss.sum(), (shared, private))
            with torch.no_grad():
                for x, gradient in zip((shared, private), gradients, strict=True):
                    x -= LR * gradient
        shared = shared.detach().mean(0, keepdim=True).expand_as(shared)  # Eq. 4, equal sizes
        private = private.detach()

    classes = encode(torch.cat([shared, private], dim=1))
    plan = solve(1 - similarity(features.tokens, classes), mass=0.25, reg=0.02).plan  # (C, B, K, V, N)
    own = plan[torch.arange(2)[:, None], torch.arange(IMAGES), labels]  # (C, B, V, N): each image's own class
    on_block = (own.sum(-1) * blocks.view(*labels.shape, 16)).sum(-1) / 0.25
    print(
        f"\nOf the mass moved at mass 0.25, {on_block.mean():.0%} lies on the coloured block (a quarter of the image)."
    )
    for client in range(len(CLIENTS)):
        _show(own[client, 0], blocks[client * IMAGES], CLASSES[labels[client, 0]])


def _row(values: torch.Tensor, spec: str) -> str:
    return "  ".join(f"{value:{spec}}" for value in values.tolist())


def _show(plan: torch.Tensor, block: torch.Tensor, name: str) -> None:
    grids = torch.cat([plan.T.reshape(2, 4, 4) / plan.max(), block[None]])
    print(f"\n{name + ':':<14}global prompt{'':<10}local prompt{'':<11}the block")
    for row in range(4):
        cells = ["".join(" .:-=+*%@"[int(8 * value)] * 2 for value in grid[row]) for grid in grids]
        print(f"{'':<14}|{cells[0]}|{'':<13}|{cells[1]}|{'':<13}|{cells[2]}|")


if __name__ == "__main__":
    main()
