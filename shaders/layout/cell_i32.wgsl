// What a cell of workgroup memory holds.
alias S = i32;
