// What follows a product, on the tile that this invocation has just stored: in a loop,
// for the text of it stands in a kernel once, however many elements a tile has.
fn finish_tile(tile: Tile, rows: u32, columns: u32) {
  let m_end = min(tile.row + rows, u.m);
  let n_end = min(tile.column + columns, u.n);
  for (var m = tile.row; m < m_end; m++) {
    let z = tile.z + m * u.z_row;
    for (var n = tile.column; n < n_end; n++) {
      st2(z + n, finish(z + n, ld2(z + n)));
    }
  }
}
