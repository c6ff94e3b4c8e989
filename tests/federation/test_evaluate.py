"""Predictions: chunks, precision, fine-tuned copies, sampled clients."""

import numpy as np
import pytest
import torch
from toy_federation import (
    CLASSES,
    TEST,
    TRAIN,
    assert_same_bits,
    in_order,
    kept_rows,
    make_data,
    make_settings,
    make_task,
    simulator,
    state_of,
    worst_difference,
)

from anchored import STRUCTURES
from fedotp.federation.clients import LocalWork
from fedotp.matching import Matching
from fedotp.methods import Batch
from fedotp.methods._promptfl import PromptFLFineTuned


@pytest.mark.parametrize("method", STRUCTURES)
def test_the_size_of_chunks_changes_nothing(method: str) -> None:
    found = []
    for size in (1, 3, 100):
        federation = simulator(method, make_settings(evaluation={"batch_size": size}))
        if federation.learns:
            federation.run_round()
        found.append(in_order(federation.predict()))
    for other in found[:2]:
        np.testing.assert_array_equal(other.client, found[2].client)
        np.testing.assert_array_equal(other.row, found[2].row)
        np.testing.assert_array_equal(other.predicted, found[2].predicted)
        np.testing.assert_allclose(other.loss, found[2].loss, atol=1e-4)


def test_every_test_image_of_every_client_is_predicted_once() -> None:
    federation = simulator(
        "fedotp", data=make_data(test=(4, 0, 5, 3, 2)), settings=make_settings(evaluation={"batch_size": 2})
    )
    predictions = in_order(federation.predict())
    assert np.bincount(predictions.client, minlength=5).tolist() == [4, 0, 5, 3, 2]
    images = federation.data.test
    for client, rows in enumerate(images.clients):
        mine = predictions.client == client
        np.testing.assert_array_equal(predictions.row[mine], rows)
        np.testing.assert_array_equal(predictions.label[mine], images.labels[rows])


def test_clients_predict_with_their_own_prompts() -> None:
    """Restated one image at a time: the scores of client i with P_g and P_l,i."""
    federation = simulator("fedotp")
    federation.run_round()
    predictions = in_order(federation.predict())
    task, images = federation.task, federation.data.test
    local = kept_rows(federation)["private"]
    for line in range(len(predictions.row)):
        prompts = torch.cat([federation.server.params["shared"], local[predictions.client[line]]])[None]
        image = images.features.read(np.array([[predictions.row[line]]]))
        scores = Matching()(image, task.encoder(prompts))[0, 0].double()
        log_q = (scores * task.logit_scale.exp()).log_softmax(0)
        assert log_q.argmax() == predictions.predicted[line]
        assert -log_q[predictions.label[line]] == pytest.approx(predictions.loss[line], abs=1e-4)


def test_zero_shot_scores_are_those_of_the_captions() -> None:
    federation = simulator("zeroshot")
    assert not federation.learns
    predictions = in_order(federation.predict())
    clip, images = federation.task.clip, federation.data.test
    text = clip.encode_text(clip.tokenizer([f"a photo of a {name}." for name in CLASSES], 77))
    pooled = images.features.pooled[0][predictions.row]
    scores = torch.nn.functional.cosine_similarity(pooled[:, None], text[None], dim=-1) * clip.logit_scale.exp()
    np.testing.assert_array_equal(scores.argmax(1).numpy(), predictions.predicted)
    expected = torch.nn.functional.cross_entropy(scores, torch.from_numpy(predictions.label), reduction="none")
    np.testing.assert_allclose(predictions.loss, expected.numpy(), atol=1e-4)
    report = federation.run_round()  # harmless
    assert (report.bytes_up, report.bytes_down) == (0, 0)


def test_fine_tuned_copies_are_forgotten() -> None:
    settings = make_settings(optimizer={"reset": False})
    federation, plain = simulator("promptfl-ft", settings), simulator("promptfl", settings)
    for each in (federation, plain):
        each.run_round()
    before = state_of(federation)
    tuned = in_order(federation.predict())
    assert_same_bits(state_of(federation), before)
    again = in_order(federation.predict())
    np.testing.assert_array_equal(tuned.loss, again.loss)
    untuned = in_order(plain.predict())
    assert_same_bits(federation.server.params, plain.server.params)
    assert tuned.loss.mean() < untuned.loss.mean()
    federation.run_round()
    plain.run_round()
    assert_same_bits(federation.server.params, plain.server.params)  # evaluation left no trace


def test_fine_tuning_takes_as_many_epochs_as_asked() -> None:
    """The copy of a client is what training it alone for that long gives."""
    federation = simulator(PromptFLFineTuned(epochs=3))
    federation.run_round()
    predictions = in_order(federation.predict())
    client = np.array([2])
    work = LocalWork(client, federation.round, 3, 0.05, purpose="finetune")
    result = federation.trainer.train(work, {"prompt": federation.server.params["prompt"][None]}, {})
    assert result.n_images == 3 * TRAIN[2]
    mine = predictions.client == 2
    rows = predictions.row[mine][None]
    image = federation.data.test.features.read(rows)
    batch = Batch(image, torch.zeros(image.pooled.shape[:2], dtype=torch.long))
    classes = federation.task.features(result.params["prompt"])
    scores = federation.method.score(federation.task, result.params, batch, classes)[0].double()
    log_q = (scores * federation.task.logit_scale.exp()).log_softmax(-1)
    expected = -log_q[torch.arange(TEST[2]), torch.from_numpy(predictions.label[mine])]
    np.testing.assert_allclose(predictions.loss[mine], expected.detach().numpy(), atol=1e-4)


def test_a_sample_of_the_clients_is_drawn_anew_each_round_from_those_with_test_images() -> None:
    data = make_data(train=(2,) * 8, test=(2, 0, 2, 2, 0, 2, 2, 2))
    federation = simulator("coop", make_settings(evaluation={"clients": 3}, holdout_clients=1), data=data)
    drawn = []
    for federation.round in range(20):
        clients = federation.drawn_for_evaluation()
        assert clients is not None
        assert len(clients) == len(set(clients.tolist())) == 3
        drawn.append(tuple(clients.tolist()))
        assert drawn[-1] == tuple(federation.drawn_for_evaluation().tolist())
    assert len(set(drawn)) > 3
    assert set(np.concatenate(drawn)) == {0, 2, 3, 5, 6, 7} - set(federation.held_out.tolist())
    everyone = simulator("coop", make_settings(evaluation={"clients": 8}), data=data)
    assert everyone.drawn_for_evaluation() is None


@pytest.mark.parametrize("method", ["fedotp", "pfedprompt"])
def test_bfloat16_runs_and_stays_near_float32(method: str) -> None:
    found = {}
    for precision in ("float32", "bfloat16"):
        federation = simulator(method, make_settings(compute={"precision": precision}, optimizer={"lr": 0.01}))
        losses = [federation.run_round().mean_loss for _ in range(2)]
        found[precision] = (federation, losses)
    (full, losses), (half, rounded) = found["float32"], found["bfloat16"]
    assert all(value.dtype == torch.float32 for value in state_of(half).values())
    difference = worst_difference(state_of(full), state_of(half))
    moved = worst_difference(state_of(full), state_of(simulator(method)))
    assert 0 < difference < 0.2 * moved
    assert rounded == pytest.approx(losses, rel=0.05)
    assert np.abs(in_order(full.predict()).loss - in_order(half.predict()).loss).max() < 0.3


@pytest.mark.parametrize(
    "prompt", [{"per_class": True}, {"words": "a photo of a", "std": 0.01}, {"position": "middle"}, {"kgcoop": 8.0}]
)
def test_other_prompts_train_too(prompt: dict) -> None:
    task = make_task(**prompt)
    federation = simulator("fedotp", make_settings(optimizer={"lr": 0.02}), task=task)
    losses = [federation.run_round().mean_loss for _ in range(3)]
    assert losses[-1] < losses[0]
    assert len(federation.predict().row) == sum(TEST)
    n_ctx = 4 if "words" in prompt else 3
    shape = (1, 3, n_ctx, 32) if "per_class" in prompt else (1, n_ctx, 32)
    assert task.contexts(1).shape == shape
    if "words" in prompt:
        ids = task.clip.tokenizer.encode("a photo of a")
        assert (task.contexts(1)[0] - task.clip.token_embedding.weight[ids]).abs().max() < 0.06


@pytest.mark.parametrize("method", STRUCTURES)
def test_a_client_without_training_images_is_not_sampled_and_predicts_all_the_same(method: str) -> None:
    federation = simulator(method, data=make_data(train=(4, 0, 3), test=(2, 2, 2)))
    assert federation.run_round().sampled.tolist() == [0, 2]
    assert np.bincount(federation.predict().client).tolist() == [2, 2, 2]
    assert np.bincount(federation.predict(np.array([1])).client).tolist() == [0, 2]
    assert np.bincount(federation.join(np.array([1])).client).tolist() == [0, 2]


def test_the_memory_of_a_client_is_its_training_images() -> None:
    """Padded with labels of -1; the spatial feature is the mean of the patches, each of length 1."""
    data = make_data()
    clients, dtype = np.array([2, 4, 1]), torch.float64
    memory = data.memory(clients, torch.device("cpu"), dtype)
    assert memory.labels.shape == (3, 10)
    for place, client in enumerate(clients):
        rows = data.train.clients[client]
        assert memory.labels[place].tolist() == [*data.train.labels[rows], *[-1] * (10 - len(rows))]
        for j, row in enumerate(rows):
            tokens = data.train.features.tokens[0, row].to(dtype)
            expected = torch.stack([token / token.norm() for token in tokens]).mean(0)
            torch.testing.assert_close(memory.spatial[place, j], expected)
