"""fedotp's simulator."""

from bench.race.work import SEED, After, Work, encode
from fedotp.federation import ComputeSettings, FederatedData, HeldFeatures, Images, Settings, Simulator


def run(work: Work, after: After) -> None:
    pooled, tokens = encode(work.clip, work.pixels) if work.way == "tutorial" else work.features
    rows = tuple(work.rows(client) for client in range(work.clients))
    images = Images(HeldFeatures(pooled[None], tokens[None]), work.labels.cpu().numpy(), rows)
    names = tuple(f"client {i}" for i in range(work.clients))
    data = FederatedData(names, (None,) * work.clients, train=images, test=images)
    settings = Settings(work.settings, compute=ComputeSettings(threads=work.threads), seed=SEED)
    simulator = Simulator(work.rules, work.task, data, settings)
    (name,) = simulator.server.params
    after(simulator.server.params[name])
    for _ in range(work.rounds):
        simulator.run_round()
        after(simulator.server.params[name])
