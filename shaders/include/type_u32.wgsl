// The element type of a kernel that is written once for every type and width.
alias T = u32;
alias E = U;

fn larger_of(a: E, b: E) -> E { return max(a, b); }
fn smaller_of(a: E, b: E) -> E { return min(a, b); }
fn beats(a: E, b: E) -> B { return a > b; }
fn overtakes(a: E, b: E) -> B { return a > b; }
