// The element type of a kernel that is written once for every type.
alias E = u32;
