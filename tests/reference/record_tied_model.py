"""Record a language model whose head is tied to its embedding, trained by AdamW, which yoke's TiedLinear must equal.

    python record_tied_model.py > tied_model.json

No random numbers: element k of the parameters (counted through all of them) starts at sin(k) / 2, computed in double;
token t of sequence s is (7 s + 3 t + t * t) % 11, and the next one is its target. Numbers are hexadecimal floats.
"""
import json
import math

import torch

VOCABULARY, WIDTH, SEQUENCES, LENGTH, STEPS = 11, 6, 8, 5, 20


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(VOCABULARY, WIDTH)
        self.hidden = torch.nn.Linear(WIDTH, WIDTH)
        self.head = torch.nn.Linear(WIDTH, VOCABULARY)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        return self.head(torch.tanh(self.hidden(self.embedding(tokens))))


torch.set_num_threads(1)
model = Model()
k = 0
with torch.no_grad():
    for p in model.parameters():
        values = [math.sin(k + i) / 2 for i in range(p.numel())]
        p.copy_(torch.tensor(values, dtype=torch.float64).view(p.shape))
        k += p.numel()
tokens = torch.tensor([[(7 * s + 3 * t + t * t) % VOCABULARY for t in range(LENGTH + 1)] for s in range(SEQUENCES)])
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, fused=True)
losses = []
for _ in range(STEPS):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    losses.append(loss.item().hex())
    optimizer.step()
print(json.dumps({
    "torch": torch.__version__,
    "parameters": [name for name, _ in model.named_parameters()],
    "state": list(model.state_dict()),
    "losses": losses,
    "embedding.weight": [v.hex() for v in model.embedding.weight.flatten().double().tolist()],
}, indent=1))
