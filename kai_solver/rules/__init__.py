"""Optional rules, one package each: everything about a rule but its check, its parsing and its file format.

`kai_solver/problem/rules.py` says what a rule is to the rest of the program. No room imports this one, and no rule
imports another: `domain.RULES` names them, and they are loaded by name.
"""
