// What a cell of workgroup memory holds.
alias S = f32;
