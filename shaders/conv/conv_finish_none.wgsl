// A convolution that ends with its sums.
fn finish_conv(at: ConvItem, rows: u32, each: u32) {}
