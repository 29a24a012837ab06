// The element type of a kernel that is written once for every type.
alias E = i32;

fn larger_of(a: E, b: E) -> E { return max(a, b); }
fn smaller_of(a: E, b: E) -> E { return min(a, b); }
fn beats(a: E, b: E) -> bool { return a > b; }
