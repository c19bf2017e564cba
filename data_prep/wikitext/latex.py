"""Formulas inside sentences: LaTeX source -> a line of text, so that the sentence around it stays whole."""

import re

# command, what it shows
_TABLE = """
alpha α, beta β, gamma γ, delta δ, epsilon ε, zeta ζ, eta η, theta θ, iota ι, kappa κ, lambda λ, mu μ, nu ν, xi ξ, pi π
rho ρ, sigma σ, tau τ, upsilon υ, phi φ, chi χ, psi ψ, omega ω, varepsilon ϵ, vartheta ϑ, varphi ϕ, Gamma Γ, Delta Δ
Theta Θ, Lambda Λ, Xi Ξ, Pi Π, Sigma Σ, Phi Φ, Psi Ψ, Omega Ω, ell ℓ, hbar ħ, partial ∂, nabla ∇, infty ∞, aleph ℵ
times ×, cdot ·, div ÷, pm ±, mp ∓, leq ≤, le ≤, geq ≥, ge ≥, neq ≠, ne ≠, approx ≈, equiv ≡, sim ∼, propto ∝
in ∈, notin ∉, subset ⊂, subseteq ⊆, cup ∪, cap ∩, emptyset ∅, setminus ∖, forall ∀, exists ∃, neg ¬, land ∧, lor ∨
wedge ∧, vee ∨, oplus ⊕, otimes ⊗, circ ∘, to →, rightarrow →, leftarrow ←, leftrightarrow ↔, mapsto ↦, Rightarrow ⇒
Leftrightarrow ⇔, iff ⇔, implies ⇒, sum ∑, prod ∏, int ∫, sqrt √, prime ′, degree °, perp ⊥, parallel ∥, angle ∠, mid |
ldots …, dots …, dotsc …, dotsb ⋯, cdots ⋯
lt <, gt >, langle ⟨, rangle ⟩, lfloor ⌊, rfloor ⌋, lbrace {, rbrace }, colon :
arccos arccos, arcsin arcsin, arctan arctan, cos cos, cosh cosh, cot cot, det det, dim dim, exp exp, gcd gcd, inf inf
ker ker, lim lim, ln ln, log log, max max, min min, mod mod, sin sin, sinh sinh, sup sup, tan tan
"""
_SYMBOLS = dict(entry.split() for line in _TABLE.strip().split("\n") for entry in line.split(", "))
_FRACTION = re.compile(r"\\[dtc]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}")
_WRAPPER = re.compile(
    r"\\(?:text|textrm|textit|textbf|mathrm|mathbf|mathit|mathsf|mathbb|mathcal|mathfrak|mathtt|boldsymbol|operatorname"
    r"|rm|bf|it|hat|bar|vec|tilde|dot|ddot|overline|underline|widehat|mbox|hbox|ce|sqrt|boxed|overrightarrow)\*?\s*\{([^{}]*)\}"
)
_BRACES = "\ue0f0\ue0f1"
_SCRIPT = re.compile(r"([_^])\{([^{}]*)\}")
_COMMAND = re.compile(r"\\([A-Za-z]+)\s?|\\(.)", re.DOTALL)


def to_text(latex: str) -> str:
    """LaTeX as a reader would type it in a line: `\\frac{a}{b}` a/b, `x^{2}` x^2, `\\alpha` α, `\\leq` ≤."""
    if "\\begin" in latex:
        latex = (
            re.sub(r"\\(?:begin|end)\s*\{[^{}]*\}(?:\{[^{}]*\})?", " ", latex).replace("&", " ").replace("\\\\", "; ")
        )
    latex = latex.replace("\\{", _BRACES[0]).replace("\\}", _BRACES[1])  # those that are shown, unlike those that group
    before = None
    while before != latex:
        before = latex
        latex = _SCRIPT.sub(_render_script, latex)
        latex = _WRAPPER.sub(lambda match: "√" * ("sqrt" in match[0]) + match[1], latex)
        latex = _FRACTION.sub(lambda match: f"{_grouped(match[1])}/{_grouped(match[2])}", latex)
    latex = _COMMAND.sub(_render_command, latex)
    latex = latex.replace("{", "").replace("}", "").replace("~", " ")
    return " ".join(latex.replace(_BRACES[0], "{").replace(_BRACES[1], "}").split())


def _grouped(term: str) -> str:
    """A term in parentheses where it has parts that a division would tear apart."""
    term = term.strip()
    return (
        f"({term})"
        if re.search(r"(?<!^)[-+\s]", term) and not re.fullmatch(r"\([^()]*\)|\\[A-Za-z]+ ?", term)
        else term
    )


def _render_script(match: re.Match[str]) -> str:
    content = match[2].strip()
    return f"{match[1]}{content}" if re.fullmatch(r"-?\w+|\\[A-Za-z]+|\\?[*'′]", content) else f"{match[1]}({content})"


def _render_command(match: re.Match[str]) -> str:
    name, character = match[1], match[2]
    if name is None:
        return character if character in "%$#&_|" else " "
    shown = _SYMBOLS.get(name, "")
    is_word = shown.isalpha() and shown.isascii()
    return f"{shown} " if is_word or (shown and name != "sqrt" and match[0].endswith(" ")) else shown
