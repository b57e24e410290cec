"""The networks of the training benches, equal to those in bench/train/models.cpp: the same seed gives the same weights."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Classifier(nn.Module):
    def __init__(self, shape, num_classes):
        super().__init__()
        self.shape, self.num_classes = shape, num_classes

    def make_batch(self):
        x = torch.randn(self.shape)
        return x, torch.randint(self.num_classes, (self.shape[0],))

    def forward(self, x, y):  # returns the loss, so that DistributedDataParallel wraps all of it
        return F.cross_entropy(self.logits(x), y)


class Mlp(Classifier):
    def __init__(self, *widths):
        super().__init__((64, widths[0]), widths[-1])
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(widths, widths[1:]))

    def logits(self, x):
        for layer in self.layers[:-1]:
            x = torch.relu(layer(x))
        return self.layers[-1](x)


class Cnn(Classifier):
    def __init__(self):
        super().__init__((64, 1, 28, 28), 10)
        self.conv1, self.conv2 = nn.Conv2d(1, 32, 3), nn.Conv2d(32, 64, 3)
        self.linear1, self.linear2 = nn.Linear(1600, 256), nn.Linear(256, 10)

    def logits(self, x):
        x = F.max_pool2d(torch.relu(self.conv1(x)), 2)
        x = F.max_pool2d(torch.relu(self.conv2(x)), 2)
        return self.linear2(torch.relu(self.linear1(x.flatten(1))))


class ResidualBlock(nn.Module):
    def __init__(self, a, b, stride):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(a, b, 3, stride, 1, bias=False), nn.BatchNorm2d(b)
        self.conv2, self.norm2 = nn.Conv2d(b, b, 3, 1, 1, bias=False), nn.BatchNorm2d(b)
        self.short = None
        if stride != 1 or a != b:
            self.short = nn.Sequential(nn.Conv2d(a, b, 1, stride, bias=False), nn.BatchNorm2d(b))

    def forward(self, x):
        y = self.norm2(self.conv2(torch.relu(self.norm1(self.conv1(x)))))
        return torch.relu(y + (x if self.short is None else self.short(x)))


class ResNet20(Classifier):
    def __init__(self):
        super().__init__((32, 3, 32, 32), 10)
        self.conv, self.norm = nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16)
        widths = [16] + [16 << (i // 3) for i in range(9)]
        self.blocks = nn.Sequential(*(ResidualBlock(widths[i], widths[i + 1], 2 if i in (3, 6) else 1)
                                      for i in range(9)))
        self.linear = nn.Linear(64, 10)

    def logits(self, x):
        return self.linear(self.blocks(torch.relu(self.norm(self.conv(x)))).mean((2, 3)))


WIDTH, HEADS, LENGTH, VOCABULARY, SEQUENCES = 128, 4, 64, 1000, 8


class TransformerBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.qkv, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.norm2, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).view(*x.shape[:2], 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        y = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape))
        return y + self.down(F.gelu(self.up(self.norm2(y))))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(*(TransformerBlock() for _ in range(4)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY)

    def make_batch(self):
        text = torch.randint(VOCABULARY, (SEQUENCES, LENGTH + 1))
        return text[:, :LENGTH], text[:, 1:]

    def forward(self, x, y):
        x = self.blocks(self.tokens(x) + self.positions(torch.arange(LENGTH, device=x.device)))
        return F.cross_entropy(self.head(self.norm(x)).view(-1, VOCABULARY), y.reshape(-1))


MODELS = {
    "mlp": lambda: Mlp(64, 64, 64, 10),
    "mlp1024": lambda: Mlp(1024, 1024, 1024, 10),
    "cnn": Cnn,
    "resnet20": ResNet20,
    "transformer": Transformer,
}
