"""Which compressor works where a theory needs a contraction: the expected outcome of each pair, which tests check."""

WORKS = "works"
MEMORY = "remembers what it leaves out"
NO_CONTRACTION = "does not contract"
NO_RESIDUAL = "keeps no residual"
OF_A_SERVER = "follows a server's rounds"
GROWS = "would grow without end"

USES = ("choco", "deep_squeeze", "change", "direct")

WITHOUT_MEMORY = (
    "cgx(bits=1, dense_below=0)",
    "crosspolytope(bits=0.2)",
    "dense()",
    "drive()",
    "eden(bits=0.5)",
    "fastsgd(feedback=False)",
    "hierarchical(feedback=False)",
    "natural()",
    "natural_dithering()",
    "qsgd()",
    "qsgd(levels=1, norm='l2')",
    "randk(density=0.1, feedback=False)",
    "selective()",
    "terngrad()",
    "ternary()",
    "terngrad(clip=0, scaler='power')",
    "topk(density=0.1, feedback=False)",
)
WITH_FEEDBACK = (
    "cgx(bits=1, dense_below=0, feedback=True)",
    "crosspolytope(bits=0.2, feedback=True)",
    "doublesqueeze(codec='random')",
    "drive(feedback=True)",
    "efsign()",
    "fastsgd()",
    "onebit()",
    "powersgd()",
    "qsgd(levels=7, bucket=64, feedback=True)",
    "randk(density=0.1)",
    "stc(density=0.1)",
    "ternary(feedback=True)",
    "topk(density=0.1)",
)
OTHER_MEMORIES = ("dgc()", "ecqsgd()", "ef21()", "regtopk()", "sparseloco()")
"""Their state is no plain residual: they send a velocity, an increment, or an error that decays."""

OUTCOMES: dict[tuple[str, str], str] = {
    **{(text, use): WORKS for text in WITHOUT_MEMORY for use in ("choco", "change", "direct")},
    **{(text, "deep_squeeze"): NO_RESIDUAL for text in WITHOUT_MEMORY},
    **{(text, "deep_squeeze"): WORKS for text in WITH_FEEDBACK},
    **{(text, use): MEMORY for text in (*WITH_FEEDBACK, *OTHER_MEMORIES) for use in ("choco", "change", "direct")},
    **{(text, "deep_squeeze"): NO_RESIDUAL for text in OTHER_MEMORIES},
    ("regtopk()", "deep_squeeze"): NO_CONTRACTION,
    **{("signsgd()", use): NO_CONTRACTION for use in ("choco", "change")},
    ("signsgd()", "direct"): WORKS,
    ("signsgd()", "deep_squeeze"): NO_RESIDUAL,
    **{(text, use): OF_A_SERVER for text in ("auto()", "balanced()") for use in ("choco", "change", "direct")},
    ("balanced()", "choco"): MEMORY,
    ("auto()", "deep_squeeze"): NO_RESIDUAL,
    ("balanced()", "deep_squeeze"): OF_A_SERVER,
}
"""(compressor, use) -> `WORKS`, or a part of the sentence that refuses the pair.  It has every method."""

FEEDBACK: dict[str, str] = {
    **dict.fromkeys(WITH_FEEDBACK, WORKS),
    "doublesqueeze()": WORKS,
    "eden(bits=0.5, feedback=True)": WORKS,
    "hierarchical()": WORKS,
    "natural(feedback=True)": WORKS,
    "fastsgd(base=16)": GROWS,
    "qsgd(levels=7, feedback=True)": GROWS,
}
"""Compressor -> whether error feedback may be around it."""
