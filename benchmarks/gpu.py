"""What runs on a GPU: compression in passes over the memory, training steps with plug-ins, a federation, and the CUDA tests.

    python -m benchmarks.gpu [--device cuda] [--entries 11200000 1000000000] [--repeats 10]

It needs torch and numpy, and neither Flower nor a network.  A pass is a copy of the vector on the device, which alternates with
what is measured; times are medians of the ratios.  Memory is what torch's allocator gives to a step.  ``--device cpu`` measures
the same on the CPU.  A section that needs more memory than there is says so, and the next one follows.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile, record_function

import fedcomp
from benchmarks.federation import CLIENTS, federation
from fedcomp.tasks import build_model
from fedcomp.training import parse

ROOT = Path(__file__).resolve().parents[1]
ENTRIES = {"cuda": (11_200_000, 1_000_000_000), "cpu": (1_200_000, 11_200_000)}
DENSITY = 1 / 400
GOAL_PASSES = 3.0
"""Selection with the residual is meant to take fewer on a GPU."""
MODELS = (("cnn", (1, 28, 28)), ("lstm", (1, 28, 28)), ("vgg11s", (3, 32, 32)))
PLANS = (
    "fedprox()",
    "batch_augmentation(copies=4, mirror=True)",
    "activation_compression()",
    "mixed_precision()",
    "mixed_precision() + activation_compression()",
    "mixed_precision('float16')",
    "admm()",
    "quantized('ternary')",
    "low_precision()",
    "zerofl()",
    "rigl()",
)
FEDERATION_PLAN = "mixed_precision() + admm(interval=5)"
BATCH = 64
ROUNDS = 40
MARK = "the loss"
TESTS = ("tests/backends", "tests/training", "tests/wire/test_change.py")
LIMIT_S = 590.0
"""The tests end by then, counted from the start of the program; the sections before them take a few minutes on a GPU."""


def seconds(action: Callable[[], object], device: torch.device) -> float:
    """Return the seconds that `action` takes, all work on the device included."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    begin = time.perf_counter()
    action()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - begin


def ratio(base: Callable[[], object], action: Callable[[], object], device: torch.device, repeats: int) -> float:
    """Return the median time of `action` over that of `base`, measured in turn after one run of both."""
    base()
    action()
    pairs = [(seconds(base, device), seconds(action, device)) for _ in range(repeats)]
    return statistics.median(mine / other for other, mine in pairs)


def compression(n: int, device: torch.device, repeats: int) -> Iterator[str]:
    """Yield a line for selection with the residual, whole encoding and whole decoding of an update (n,) on `device`."""
    compressor = fedcomp.stc(density=DENSITY)
    generator = torch.Generator(device).manual_seed(0)
    update = torch.randn(n, generator=generator, device=device)
    copy = torch.empty_like(update)
    body, state = compressor.encode(update, compressor.init(n))

    def select() -> None:
        nonlocal state
        compensated = compressor.memory.compensate(update, state)
        state = compressor.memory.update(compensated, compressor.quantizer.quantize(compensated), state)

    def encode() -> None:
        nonlocal body, state
        body, state = compressor.encode(update, state)

    def decode() -> None:
        copy.copy_(torch.from_numpy(compressor.decode(body, n)))

    def one_pass() -> None:
        copy.copy_(update)

    for name, action in (("selection and residual", select), ("encode", encode), ("decode to the device", decode)):
        passes = ratio(one_pass, action, device, repeats)
        goal = f", goal on a GPU: under {GOAL_PASSES:g}" if action is select else ""
        yield f"{n:>13,}  {name:<24}{passes:>9.2f} passes{goal}"
    yield f"{n:>13,}  {'a pass':<24}{1e3 * seconds(one_pass, device):>9.2f} ms"


def steps(name: str, shape: tuple[int, int, int], device: torch.device, repeats: int) -> Iterator[str]:
    """Yield a line for a training step of a model with each plug-in, over a step without; those that do not fit say why."""
    generator = torch.Generator(device).manual_seed(0)
    x = torch.rand(BATCH, *shape, generator=generator, device=device)
    y = torch.randint(10, (BATCH,), generator=generator, device=device)

    def step_of(text: str) -> Callable[[Callable[[], object]], None]:
        model: nn.Module = parse(text).prepare(build_model(name, shape, 10, 0), 0).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        training = parse(text).begin(model)

        def step(at_loss: Callable[[], object]) -> None:
            def loss(outputs: Tensor, y: Tensor) -> Tensor:
                at_loss()
                return functional.cross_entropy(outputs, y)

            training.step(optimizer, x, y, loss)
            optimizer.zero_grad()

        return step

    def gradients(text: str) -> list[Tensor]:
        model: nn.Module = parse(text).prepare(build_model(name, shape, 10, 0), 0).to(device)
        optimizer, training = torch.optim.SGD(model.parameters(), lr=0.0), parse(text).begin(model)
        for _ in range(2):  # a plug-in may measure in the first
            training.step(optimizer, x, y, functional.cross_entropy)
        return [weight.grad for weight in model.parameters() if weight.grad is not None and weight.dim() > 1]

    plain = step_of("")
    for text in PLANS:
        try:
            action = step_of(text)
        except ValueError as error:
            yield f"{name:<8}{text:<46}{error}"
            continue
        times = ratio(partial(plain, nothing), partial(action, nothing), device, repeats)
        peak, saved = (mine / most for mine, most in zip(memory(action, device), memory(plain, device), strict=True))
        sizes = f"{times:.2f} times a step, {peak:.2f} its memory, {saved:.2f} after the forward pass"
        yield f"{name:<8}{text:<46}{sizes}{_gradient_error(text, gradients)}"


def _gradient_error(text: str, gradients: Callable[[str], list[Tensor]]) -> str:
    """Return as text the largest error of a matrix's gradient: its root mean square over the gradient's mean magnitude.

    It is empty if a plug-in means to change the gradient.
    """
    if not any(name in text for name in ("activation_compression", "mixed_precision")):
        return ""
    pairs = zip(gradients(text), gradients(""), strict=True)
    worst = max(float((mine - right).square().mean().sqrt() / right.abs().mean()) for mine, right in pairs)
    return f", gradient error {worst:.3f}"


def memory(step: Callable[[Callable[[], object]], object], device: torch.device) -> tuple[int, int]:
    """Return the most bytes that torch's allocator gives to a step at a time, and those that it holds after the forward pass.

    `step` calls its argument when it computes the loss: all that the backward pass needs is in memory then, and little else.
    """
    if device.type == "cuda":
        sizes: list[int] = []
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        step(lambda: sizes.append(torch.cuda.memory_allocated(device)))
        return torch.cuda.max_memory_allocated(device) - before, sizes[0] - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        step(mark)
    results: Any = profiler.profiler and profiler.profiler.kineto_results  # torch declares its events in part
    held = peak = at_loss = 0
    for event in sorted(results.events(), key=lambda event: event.start_ns()):
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
        elif event.name() == MARK:
            at_loss = held
    return peak, at_loss


def mark() -> None:
    """Leave a mark in what the profiler records."""
    with record_function(MARK):
        pass


def nothing() -> None:
    """Do nothing."""


def federations(device: torch.device, rounds: int) -> Iterator[str]:
    """Yield a line for a federation whose clients train on `device`, with plug-ins and without, and one for the CPU."""
    for each, training in dict.fromkeys(((device, FEDERATION_PLAN), (device, ""), (torch.device("cpu"), ""))):
        begin = time.perf_counter()
        result = federation(each, rounds, training=training)
        accuracy, ratio_of_bytes = 100 * result.accuracy, result.dense_bytes / result.sent_bytes
        took_s = time.perf_counter() - begin
        figures = f"accuracy {accuracy:.1f} %, {ratio_of_bytes:.1f} times less traffic, {took_s:.1f} s"
        yield f"{each.type:<8}{training or 'no plug-ins':<46}{figures}"


def run_tests(folders: Sequence[str] = TESTS, limit_s: float = LIMIT_S) -> tuple[str, int]:
    """Run the tests of the code that may run on a GPU; return pytest's last line, and its exit status, 0 if all passed.

    Those that are not done after `limit_s` seconds count as failed.
    """
    if find_spec("pytest") is None:
        return "the CUDA tests did not run: pytest is not installed", 1
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *folders]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=limit_s)
    except subprocess.TimeoutExpired:
        return f"{' '.join(folders)}: not done after {limit_s:.0f} s", 1
    lines = (done.stdout or done.stderr).strip().splitlines() or ["pytest printed nothing"]
    return f"{' '.join(folders)}: {lines[-1].strip('= ')}", done.returncode


def print_section(title: str, lines: Iterator[str]) -> None:
    """Print the lines of a section as they come; one that needs more memory than there is ends with a line that says so."""
    print(title, flush=True)
    try:
        for line in lines:
            print(line, flush=True)
    except torch.OutOfMemoryError:
        print("    more than the memory of this device", flush=True)
    except MemoryError:
        print("    more than the memory of this machine", flush=True)


def _positive(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r}; a whole number above 0 is needed")
    return int(text)


def main() -> int:
    """Print the measurements of a device; return 1 if there is no such device or a test failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description="Measure compression and training.")
    parser.add_argument("--device", default="cuda", choices=list(ENTRIES))
    parser.add_argument(
        "--entries", type=_positive, nargs="*", help="vector lengths (default: 11.2 M and 1 B on a GPU)"
    )
    parser.add_argument("--repeats", type=_positive, default=10)
    parser.add_argument("--no-tests", action="store_true", help="leave the tests out")
    options = parser.parse_args()
    begin = time.perf_counter()
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler's own messages
    if options.device == "cuda" and not torch.cuda.is_available():
        print("device is 'cuda'; torch finds no GPU here: --device cpu measures on the CPU", file=sys.stderr)
        return 1
    device = torch.device(options.device)
    if device.type == "cpu":
        torch.set_num_threads(1)  # on a machine that others use too, two threads wait for each other
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name() if device.type == 'cuda' else 'CPU'}\n")
    for n in options.entries or ENTRIES[device.type]:
        title = f"stc(density=1/{round(1 / DENSITY)}), {n:,} entries, a pass is a copy on the device"
        print_section(title, compression(n, device, options.repeats))
    for name, shape in MODELS:
        print_section(f"\n{name}: training steps on batches of {BATCH}", steps(name, shape, device, options.repeats))
    print_section(f"\n{ROUNDS} rounds of {CLIENTS} clients, digits, stc() both ways", federations(device, ROUNDS))
    status = 0
    if not options.no_tests:
        summary, status = run_tests(limit_s=max(1.0, LIMIT_S - (time.perf_counter() - begin)))
        print(f"\n{summary}")
    print(f"\n{time.perf_counter() - begin:.0f} s in all")
    return min(1, status)


if __name__ == "__main__":
    sys.exit(main())
