"""Networks for tables, graphs, point clouds and other data."""

import torch
from torch import Tensor, nn

from families.layers import mlp
from families.network import DYNAMIC, DYNAMO, QDQ, QOPERATOR, TORCHSCRIPT, Network, numbers, real

FAMILY = "others"


def perceptron() -> nn.Module:
    layers = nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.BatchNorm1d(512), nn.ELU(), nn.Linear(512, 10)
    return nn.Sequential(*layers, nn.Softmax(1))


class Recommender(nn.Module):
    """Recommender: dot products of all pairs of embeddings (Naumov et al. 2019)."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList([nn.Embedding(100, 16) for _ in range(5)])
        self.dense, self.last = mlp(16, 32, nn.ReLU), nn.Linear(16 + 15, 1)

    def forward(self, dense: Tensor, kinds: Tensor) -> Tensor:
        x = self.dense(dense)
        vectors = torch.stack([x, *(table(kinds[:, index]) for index, table in enumerate(self.tables))], 1)
        products = torch.bmm(vectors, vectors.transpose(1, 2))
        rows, columns = torch.tril_indices(6, 6, -1)
        return self.last(torch.cat((x, products[:, rows, columns]), 1)).sigmoid()


class Messages(nn.Module):
    """Graph network: messages along edges, summed at their target nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.message, self.update = mlp(32, 64, nn.ReLU), nn.Linear(48, 16)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        sent = self.message(torch.cat((x[edges[0]], x[edges[1]]), 1))
        arrived = torch.zeros(x.shape[0], 32).index_add(0, edges[1], sent)
        return self.update(torch.cat((x, arrived), 1))


class Points(nn.Module):
    """PointNet: an MLP for each point, then the maximum over points (Qi et al. 2016)."""

    def __init__(self) -> None:
        super().__init__()
        self.turn = nn.Sequential(
            nn.Conv1d(3, 32, 1), nn.ReLU(), nn.AdaptiveMaxPool1d(1), nn.Flatten(), nn.Linear(32, 9)
        )
        self.each = nn.Sequential(nn.Conv1d(3, 64, 1), nn.BatchNorm1d(64), nn.ReLU(), nn.Conv1d(64, 256, 1))
        self.head = nn.Linear(256, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.bmm(self.turn(x).view(-1, 3, 3) + torch.eye(3), x)
        return self.head(self.each(x).max(2).values)


class Chosen(nn.Module):
    """Selection of rows, whose number depends on the input's values."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        rows = (x.sum(1) > 0).nonzero().squeeze(1)
        return self.linear(x[rows])


class Writer(nn.Module):
    """Decoder step with attention to the input (Bahdanau et al. 2014)."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.cell, self.head = nn.Embedding(100, 32), nn.GRUCell(96, 64), nn.Linear(128, 100)
        self.query = nn.Linear(64, 64)

    def forward(self, word: Tensor, state: Tensor, read: Tensor) -> tuple[Tensor, Tensor]:
        weights = torch.einsum("bd,bld->bl", self.query(state), read).softmax(-1)
        seen = torch.einsum("bl,bld->bd", weights, read)
        state = self.cell(torch.cat((self.words(word), seen), 1), state)
        return self.head(torch.cat((state, seen), 1)), state


BATCHES = ({"batch": 4}, {"batch": 1})
GRAPHS = ({"nodes": 40, "edges": 90}, {"nodes": 25, "edges": 70})

NETWORKS = [
    Network(FAMILY, "perceptron", perceptron, {"x": real("batch", 64)}, BATCHES, formats=(QDQ, QOPERATOR, DYNAMIC)),
    Network(
        FAMILY,
        "recommender",
        Recommender,
        {"dense": real("batch", 16), "kinds": numbers("batch", 5, below=100)},
        BATCHES,
    ),
    Network(
        FAMILY,
        "messages",
        Messages,
        {"x": real("nodes", 16), "edges": numbers(2, "edges", below=25)},
        GRAPHS,
        exporters=(DYNAMO,),  # The other exporter leaves the result of several messages to one node undefined.
    ),
    Network(
        FAMILY,
        "points",
        Points,
        {"x": real("batch", 3, "points")},
        ({"batch": 2, "points": 200}, {"batch": 1, "points": 90}),
    ),
    Network(
        FAMILY,
        "decoder step",
        Writer,
        {"word": numbers("batch", below=100), "state": real("batch", 64), "read": real("batch", "length", 64)},
        ({"batch": 2, "length": 9}, {"batch": 1, "length": 14}),
        outputs=("y", "state_out"),
    ),
    Network(
        FAMILY, "rows that count", Chosen, {"x": real("rows", 8)}, ({"rows": 20}, {"rows": 9}), exporters=(TORCHSCRIPT,)
    ),
]
