"""All mutants."""

from tests.mutants import of_bounds, of_budgets, of_exits, of_grid, of_noise, of_products, of_questions, of_sums
from tests.mutants.mutant import Mutant

MUTANTS: tuple[Mutant, ...] = (
    *of_noise.MUTANTS,
    *of_grid.MUTANTS,
    *of_bounds.MUTANTS,
    *of_budgets.MUTANTS,
    *of_exits.MUTANTS,
    *of_questions.MUTANTS,
    *of_sums.MUTANTS,
    *of_products.MUTANTS,
)
