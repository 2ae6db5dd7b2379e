"""The automatic choice next to dense traffic and to the cheapest fixed method, from the tables of its studies.

    python -m experiments.automatic runs/studies/auto-*/results.csv [--by-length] [--markdown]

For each task, participation and length of a run, the best fixed method is the one with the fewest bytes, both ways, among
those whose mean accuracy is at most half a point below dense.  The accuracy is the mean of the evaluations in the last fifth of
the rounds.  Only seeds that all methods of a line have count.  A run that diverged has the accuracy 0.  With --by-length, the
lengths of a task's runs are columns, in two tables: accuracy, and bytes.
"""

import argparse
import re
import sys

import pandas as pd

from experiments.command import command, new_parser, usage
from experiments.plan import StudyError
from experiments.results import read_csv
from experiments.table import Table
from fedcomp.commands import path_of

BOUND, MOST_BYTES = 0.005, 1.25
"""The mean accuracy that a method may be below dense, and the most bytes that auto should send, over those of the best pair."""
AUTO = re.compile(r"auto, (\d+) rounds")
"""The label of the automatic choice in a run of this length."""
DENSE = "dense"
LAST = 0.2
"""The share of the rounds, the last ones, in whose evaluations the accuracy is measured."""
SCENARIO = ["dataset", "partition", "model", "participation", "rounds"]
HEAD = (
    "data",
    "partition",
    "model",
    "participation",
    "rounds",
    "seeds",
    "dense",
    "auto",
    "ratio",
    "best fixed",
    "its ratio",
    "auto's bytes / best's",
)


def ends(table: pd.DataFrame) -> pd.DataFrame:
    """Return accuracy and bytes of each method and seed at the end of each length of run, the automatic choice as "auto"."""
    planned = table["method"].str.extract(AUTO.pattern)[0].astype(float)
    runs = []
    for rounds in sorted(planned.dropna().astype(int).unique()):
        part = table[planned.isna() | (planned == rounds)]
        lost = part["accuracy"].isna() & (part["round"] <= rounds)
        late = part[((part["round"] > (1 - LAST) * rounds) & (part["round"] <= rounds)) | lost]
        late = late.assign(method=late["method"].str.replace(AUTO, "auto", regex=True), rounds=rounds)
        cells = late.groupby([*SCENARIO, "method", "seed"], sort=False)
        last = cells.tail(1).set_index([*SCENARIO, "method", "seed"])
        accuracy = cells["accuracy"].apply(lambda each: 0.0 if each.isna().any() else each.mean())
        reached = (last["round"] == rounds) | last["accuracy"].isna()
        runs.append(last.assign(accuracy=accuracy)[reached].reset_index())
    if not runs:
        raise StudyError(
            "no method is called 'auto, N rounds'; the results of a study of the automatic choice are needed"
        )
    rows = pd.concat(runs)
    return rows.assign(
        sent=rows["uplink_bytes"] + rows["downlink_bytes"],
        plain=rows["dense_uplink_bytes"] + rows["dense_downlink_bytes"],
    )[[*SCENARIO, "method", "seed", "accuracy", "sent", "plain"]]


def compare(table: pd.DataFrame) -> Table:
    """Return a line for each scenario that dense, the automatic choice and a fixed method have run; means over seeds."""
    rows, held, cheap = [], 0, 0
    for (dataset, partition, model, participation, rounds), group in ends(table).groupby(SCENARIO):
        runs = group.pivot(index="seed", columns="method", values=["accuracy", "sent", "plain"]).dropna()
        if runs.empty or not {"auto", DENSE} < set(group["method"]):
            continue
        mean = runs.mean().unstack(0)
        dense = mean.loc[DENSE, "accuracy"]
        holding = mean[mean["accuracy"] >= dense - BOUND - 1e-9].drop(index="auto", errors="ignore")
        best, auto = holding["sent"].idxmin(), mean.loc["auto"]
        gap = 100 * (runs["accuracy"]["auto"] - runs["accuracy"][DENSE])
        error = f" ± {gap.sem():.1f}" if len(gap) > 1 else ""
        fixed = mean.loc[best]
        holds = auto["accuracy"] >= dense - BOUND - 1e-9
        held += holds
        cheap += holds and auto["sent"] <= MOST_BYTES * fixed["sent"]
        rows.append(
            (
                *(str(dataset), str(partition), str(model), f"{100 * float(participation):g} %", str(rounds)),
                *(str(len(runs)), f"{100 * dense:.1f} %"),
                *(f"{gap.mean():+.1f}{error}", f"{auto['plain'] / auto['sent']:.1f}"),
                *(str(best), f"{fixed['plain'] / fixed['sent']:.1f}", f"{auto['sent'] / fixed['sent']:.2f}"),
            )
        )
    caption = (
        "Accuracy of dense in the last fifth of the rounds, and auto's points above or below it with the standard error over "
        "the seeds; plain Flower's bytes over those sent, both ways. Auto is at most half a point below dense in "
        f"{held} of {len(rows)} lines, and in {cheap} of these it sends at most {MOST_BYTES:g} times the best pair's bytes."
    )
    return Table(caption, HEAD, tuple(rows))


def by_length(lines: Table) -> tuple[Table, Table]:
    """Return what `compare` returns as two tables, of accuracy and of bytes, with a column for each length of run."""
    lengths = sorted({line[4] for line in lines.rows}, key=int)
    points, ratios = dict[tuple[str, ...], dict[str, str]](), dict[tuple[str, ...], dict[str, str]]()
    for *task, rounds, seeds, _, gap, ratio, _, best, _ in lines.rows:
        points.setdefault((*task, seeds), {})[rounds] = gap
        ratios.setdefault((*task, seeds), {})[rounds] = f"{ratio} of {best}"
    captions = (
        "Auto's points of accuracy above or below dense in the last fifth of the rounds, with the standard error over seeds.",
        "How many times fewer bytes than plain Flower, both ways: auto, of the best fixed pair.",
    )
    head = (*HEAD[:4], HEAD[5], *(f"{rounds} rounds" for rounds in lengths))
    first, second = (
        Table(
            caption,
            head,
            tuple((*task, *(cells.get(rounds, "-") for rounds in lengths)) for task, cells in rows.items()),
        )
        for caption, rows in zip(captions, (points, ratios), strict=True)
    )
    return first, second


def run(options: argparse.Namespace) -> None:
    """Print the table, or the two by length."""
    with usage():
        table = compare(pd.concat([read_csv(path) for path in options.tables]))
        if not table.rows:
            raise StudyError("no run of auto has dense and a fixed method of the same length next to it")
    if options.by_length:
        print(f"{table.caption}\n")
    for each in by_length(table) if options.by_length else (table,):
        print(each.to_markdown() if options.markdown else each.to_text())


PARSER = new_parser("python -m experiments.automatic", __doc__)
PARSER.add_argument("tables", type=path_of, nargs="+", metavar="CSV", help="results of the study, or of its parts")
PARSER.add_argument(
    "--by-length", action="store_true", help="print a table of accuracy and one of bytes, by length of run"
)
PARSER.add_argument("--markdown", action="store_true", help="print Markdown")
main = command(run, PARSER)


if __name__ == "__main__":
    sys.exit(main())
