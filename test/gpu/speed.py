"""speed.py KIND: for each line with a number of seconds works so long and prints how many steps a second it did.

Kinds: eager and compiled (a small transformer trained by PyTorch; compiled with torch.compile and CUDA graphs), jax (the
same size of products and a gradient, jitted).
"""
import sys, time

kind = sys.argv[1]


def transformer():
    import torch
    from torch import nn

    torch.manual_seed(1)
    vocab, width, length, batch = 512, 512, 256, 32
    layer = nn.TransformerEncoderLayer(width, 8, 4 * width, dropout=0.0, batch_first=True)
    model = nn.Sequential(nn.Embedding(vocab, width), nn.TransformerEncoder(layer, 6), nn.Linear(width, vocab)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), 3e-4, capturable=True)
    rows = torch.randint(0, vocab, (batch, length + 1), generator=torch.Generator().manual_seed(2)).cuda()

    def loss_of(rows):
        out = model(rows[:, :-1])
        return nn.functional.cross_entropy(out.reshape(-1, vocab), rows[:, 1:].reshape(-1))
    if kind == "compiled":
        loss_of = torch.compile(loss_of, mode="reduce-overhead")

    def step():
        loss = loss_of(rows)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return step, torch.cuda.synchronize


def jitted():
    import jax
    import jax.numpy as jnp

    keys = jax.random.split(jax.random.PRNGKey(1), 7)
    weights = [jax.random.normal(k, (2048, 2048), jnp.bfloat16) / 45 for k in keys[:6]]
    x = jax.random.normal(keys[6], (4096, 2048), jnp.bfloat16)

    def loss(weights):
        y = x
        for w in weights:
            y = jnp.tanh(y @ w)
        return (y.astype(jnp.float32) ** 2).mean()
    update = jax.jit(lambda weights: [w - 0.1 * g for w, g in zip(weights, jax.grad(loss)(weights))])
    state = [weights]

    def step():
        state[0] = update(state[0])
    return step, lambda: jax.block_until_ready(state[0])


step, wait = jitted() if kind == "jax" else transformer()
for _ in range(20):
    step()
wait()
print("ready", flush=True)
for line in sys.stdin:
    n, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < float(line):
        for _ in range(5):
            step()
        wait()
        n += 5
    print(n / (time.perf_counter() - begin), flush=True)
