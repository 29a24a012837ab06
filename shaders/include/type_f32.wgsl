// needs: nan
// The element type of a kernel that is written once for every type and width.
alias T = f32;
alias E = F;

// NaN stays where it is met, and stands behind every number in a ranking.
fn larger_of(a: E, b: E) -> E { return larger(a, b); }
fn smaller_of(a: E, b: E) -> E { return smaller(a, b); }
fn beats(a: E, b: E) -> B { return !is_nan(a) & (is_nan(b) | (a > b)); }

// a stands before b among the largest, where NaN is above every number.
fn overtakes(a: E, b: E) -> B { return !is_nan(b) & (is_nan(a) | (a > b)); }
