// Twofish's h without its first permutations where the key is short: a pipeline, one word a cycle.
//
// Stages: q and key word 3 | q and 2 | q and 1 | q and 0 | q | MDS matrix. The first two are there with LongKeys only, and
// shorter keys pass them unchanged. Each key word is given for the word that is in its stage. The permutations q are
// computed from their tables of four bits, so nothing is prepared for a key.
module ace_twofish_h
  import ace_pkg::*, aes_pkg::byte_t, aes_pkg::field_multiply;
#(
  parameter bit LongKeys = 1'b1
) (
  input  logic        clk_i,
  input  word_t       x_i,
  input  word_t [3:0] keys_i,
  input  logic  [1:0] pass_i,  // [1]: the stage of key word 3 leaves its word unchanged, [0]: that of key word 2
  output word_t       z_o
);
  localparam int unsigned Skipped = LongKeys ? 0 : 2;

  // What becomes of 0 in the highest digit.
  localparam logic [63:0] Tables[2][4] = '{
    '{64'h817d6f320b59eca4, 64'hecb81235f4a6709d, 64'hba5e6d90c8f32471, 64'hd7f4126e9b3085ca},
    '{64'h28bdf76e31940ac5, 64'h1e2b4c376da5f908, 64'h4c75169a0ed82b3f, 64'hb951c3de647f208a}
  };

  function automatic logic [3:0] look(logic [63:0] table_, logic [3:0] at);
    return table_[63-4*at-:4];
  endfunction

  function automatic byte_t permuted(bit which, byte_t x);
    logic [3:0] a, b, c, d;
    {a, b} = x;
    for (int unsigned i = 0; i < 4; i += 2) begin
      c = a ^ b;
      d = a ^ {b[0], b[3:1]} ^ {a[0], 3'b0};
      a = look(Tables[which][i], c);
      b = look(Tables[which][i+1], d);
    end
    return {b, a};
  endfunction

  // Which q a byte goes through in each stage, byte 0 in the lowest bit.
  localparam logic [3:0] Which[5] = '{4'b1001, 4'b0011, 4'b1010, 4'b1100, 4'b0101};

  function automatic word_t permute(logic [3:0] which, word_t x);
    for (int unsigned i = 0; i < 4; i++) permute[8*i+:8] = permuted(which[i], x[8*i+:8]);
  endfunction

  // GF(2^8) modulo x^8 + x^6 + x^5 + x^3 + 1.
  localparam byte_t Mds[4][4] = '{
    '{8'h01, 8'hef, 8'h5b, 8'h5b}, '{8'h5b, 8'hef, 8'hef, 8'h01},
    '{8'hef, 8'h5b, 8'h01, 8'hef}, '{8'hef, 8'h01, 8'hef, 8'h5b}
  };

  function automatic word_t multiply(word_t y);
    multiply = '0;
    for (int unsigned row = 0; row < 4; row++) begin
      for (int unsigned i = 0; i < 4; i++) multiply[8*row+:8] ^= field_multiply(y[8*i+:8], Mds[row][i], 8'h69);
    end
  endfunction

  word_t y_q[Skipped:5];
  for (genvar i = Skipped; i <= 5; i++) begin : g_stage
    word_t y;
    if (i == Skipped) begin : g_first
      assign y = x_i;
    end else begin : g_next
      assign y = y_q[i-1];
    end
    always_ff @(posedge clk_i) begin
      if (i == 5) y_q[i] <= multiply(y);
      else if (i == 4) y_q[i] <= permute(Which[4], y);
      else y_q[i] <= i < 2 && pass_i[1-i%2] ? y : permute(Which[i%5], y) ^ keys_i[3-i%4];
    end
  end
  assign z_o = y_q[5];

  if (!LongKeys) begin : g_unused
    logic unused;
    assign unused = &{1'b0, pass_i, keys_i[3:2]};
  end
endmodule
