// What a cell of workgroup memory holds.
alias S = u32;
