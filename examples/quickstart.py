"""Two clients, two prompts each, learned side by side through unbalanced optimal transport.

    python examples/quickstart.py

The backbone is a tiny CLIP with random weights and the images are drawn here, so nothing is downloaded and the
whole run takes seconds. What it shows is the method at work: each image has one patch of its class's colour among
patches of noise; the clients hold different classes; every round averages the global prompts and keeps the local ones.
"""

import torch

from fedotp.clip import CLIP, TINY, ImageFeatures
from fedotp.matching import Matching, cross_entropy, similarity
from fedotp.ot import solve
from fedotp.prompts import PromptEncoder, Prompts, random_context

CLASSES = ["red", "green", "blue", "yellow"]
COLOURS = torch.tensor([[3.0, -2, -2], [-2, 3, -2], [-2, -2, 3], [3, 3, -2]])
CLIENTS = [(0, 1), (2, 3)]  # the labels each client holds
ROUNDS, LOCAL_STEPS, IMAGES, LR = 15, 5, 64, 0.05


def draw(labels: torch.Tensor, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Images (B, 3, 32, 32): a 2 x 2 block of patches of the class's colour, on noise. Also where it lies."""
    images = 0.3 * torch.randn(len(labels), 3, 32, 32, generator=generator)
    corners = torch.randint(0, 3, (len(labels), 2), generator=generator)
    for image, label, (row, column) in zip(images, labels, corners, strict=True):
        image[:, 8 * row : 8 * row + 16, 8 * column : 8 * column + 16] = COLOURS[label][:, None, None]
    return images, corners


def main() -> None:
    """Train, then show accuracy and where the prompts look."""
    generator = torch.Generator().manual_seed(0)
    clip = CLIP.random(TINY)
    encode = PromptEncoder(clip, CLASSES, n_ctx=4)
    match = Matching(rule="unbalanced", reg=0.1, mass=0.5)

    # Every image is encoded once: the tower is frozen.
    labels = torch.tensor([[c[i % 2] for i in range(IMAGES)] for c in CLIENTS])  # (C, B)
    images, corners = draw(labels.flatten(), generator)
    flat = clip.encode_image(images)
    features = ImageFeatures(*(x.unflatten(0, labels.shape) for x in flat))

    start = random_context(clip, n_prompts=2, n_ctx=4, n_clients=len(CLIENTS), std=0.1)
    prompts = Prompts(shared=start[:, :1], private=start[:, 1:])
    print(f"{'round':>5}  {'loss of each client':<22} accuracy of each client")
    for round_ in range(ROUNDS + 1):
        shared, private = (x.clone().requires_grad_() for x in (prompts.shared, prompts.private))
        for step in range(LOCAL_STEPS):  # all clients at once, along the client axis
            scores = match(features, encode(Prompts(shared, private).context()))  # (C, B, K)
            loss = cross_entropy(scores, labels, clip.logit_scale)  # (C,)
            if step == 0 and round_ % 3 == 0:
                accuracy = (scores.argmax(-1) == labels).float().mean(1)
                print(f"{round_:>5}  {_row(loss, '.3f'):<22} {_row(accuracy, '.0%')}")
            gradients = torch.autograd.grad(loss.sum(), (shared, private))
            with torch.no_grad():
                for x, gradient in zip((shared, private), gradients, strict=True):
                    x -= LR * gradient
        average = shared.detach().mean(0, keepdim=True).expand_as(shared)  # Eq. 4, equal sizes
        prompts = Prompts(shared=average, private=private.detach())

    classes = encode(prompts.context())
    plan = solve(1 - similarity(features.tokens, classes), mass=0.1, reg=0.01).plan  # (C, B, K, V, N)
    print("\nTransport plan of one image of each client (its own class, mass 0.1; # marks the coloured block):")
    for client in range(len(CLIENTS)):
        _show(plan[client, 0, labels[client, 0]], corners[client * IMAGES], CLASSES[labels[client, 0]])


def _row(values: torch.Tensor, spec: str) -> str:
    return "  ".join(f"{value:{spec}}" for value in values.tolist())


def _show(plan: torch.Tensor, corner: torch.Tensor, name: str) -> None:
    grids = plan.T.reshape(2, 4, 4) / plan.max()
    print(f"\n{name + ':':<14}global prompt{'':<10}local prompt{'':<11}image")
    for row in range(4):
        cells = ["".join(" .:-=+*%@"[int(8 * value)] * 2 for value in grid[row]) for grid in grids]
        block = [
            "##" if corner[0] <= row < corner[0] + 2 and corner[1] <= c < corner[1] + 2 else "··" for c in range(4)
        ]
        print(f"{'':<14}|{cells[0]}|{'':<13}|{cells[1]}|{'':<13}|{''.join(block)}|")


if __name__ == "__main__":
    main()
