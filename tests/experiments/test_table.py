"""A table keeps its texts in every form, with its numbers to the right and its best cells in bold."""

import re

from experiments.table import Table

TABLE = Table(
    "Accuracy in %, by a_b.",
    ("method", "50 %", "a_b", "settings"),
    (("A & B|C", "1.0 ± 0.2", "2 of 3 seeds", "1 GB"), ("10^6 \\ ~{x}#$", "never", "-", "none")),
    {(0, 1), (1, 2)},
)


def test_markdown_has_bold_cells_numbers_to_the_right_and_escapes_the_end_of_a_cell() -> None:
    assert TABLE.to_markdown().splitlines() == [
        "Accuracy in %, by a_b.",
        "",
        "| method | 50 % | a_b | settings |",
        "| --- | ---: | ---: | --- |",
        "| A & B\\|C | **1.0 ± 0.2** | 2 of 3 seeds | 1 GB |",
        "| 10^6 \\ ~{x}#$ | never | **-** | none |",
    ]


def test_text_is_the_caption_and_aligned_columns_of_texts_as_they_are() -> None:
    lines = Table("A caption.", ("a[b]", "b[/a]"), (("[b]a", "9"), ("bc", "1000"))).to_text().splitlines()
    assert [lines[0], lines[2], *lines[4:]] == ["A caption.", " a[b]   b[/a]", " [b]a       9", " bc      1000"]


def test_latex_is_a_tabular_whose_texts_print_as_they_are() -> None:
    assert TABLE.to_latex().splitlines() == [
        "% Accuracy in %, by a_b.",
        r"\begin{tabular}{lrrl}",
        r"\toprule",
        r"method & 50 \% & a\_b & settings \\",
        r"\midrule",
        r"A \& B|C & \textbf{1.0 $\pm$ 0.2} & 2 of 3 seeds & 1 GB \\",
        r"10\textasciicircum{}6 \textbackslash{} \textasciitilde{}\{x\}\#\$ & never & \textbf{-} & none \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]
    assert len(re.findall(r"(?<!\\)&", TABLE.to_latex())) == 3 * 3  # one between each two columns of each row


def test_a_column_is_numeric_if_every_text_is_a_number_or_a_gap_and_one_is_a_number() -> None:
    rows = (("1", "3G", "", "-3.5", "4"), ("2", "DSL", "-", "", "x"))
    assert Table("", ("a", "b", "c", "d", "e"), rows).numeric == (False, False, False, True, False)
    assert Table("", ("a", "b"), ()).numeric == (False, False)
