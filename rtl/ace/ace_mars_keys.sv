// The key expansion of MARS as it was tweaked for the second AES round (1999): one word a cycle.
//
// Each of four iterations makes ten of the forty words: a linear step over fifteen words, five of them a cycle, then four
// stirring passes, one word a cycle, because each needs the one in front of it. The words leave during the last pass.
// Keys of multiplications are searched for runs of ten equal bits and mended in two cycles of a pipeline. All words take
// them, so no cycle depends on the key.
module ace_mars_keys
  import ace_pkg::*;
#(
  parameter bit LongKeys = 1'b1
) (
  input  logic         clk_i,
  input  logic         rst_ni,
  input  logic         clear_i,
  input  key_command_t key_i,
  output logic         valid_o,
  output logic         slot_o,
  output logic  [ 5:0] index_o,  // of the word in K
  output word_t        word_o
);
  localparam word_t Fix[4] = '{32'ha4a8d57b, 32'h5b5d193b, 32'hc8a8309b, 32'h73f9a978};

  // T, turned so that [0] is the word whose turn it is; T[i - n] is [15 - n].
  word_t [14:0] t_q, linear;
  word_t stirred, found;
  logic expands_q, slot_q, stirs_q;
  logic [1:0] iteration_q, pass_q;
  logic [3:0] place_q;  // of [0] in T

  ace_mars_rom u_box (
    .clk_i,
    .at_i(stirs_q ? stirred[8:0] : linear[14][8:0]),
    .word_o(found)
  );
  assign stirred = rol(t_q[0] + found, 9);

  always_comb begin
    linear = t_q;
    for (int unsigned i = 0; i < 5; i++) begin
      linear = {
        linear[0] ^ rol(linear[8] ^ linear[13], 3) ^ {26'b0, place_q + 4'(i), iteration_q}, linear[14:1]
      };
    end
  end

  logic last_place, ends;
  assign last_place = place_q == (stirs_q ? 4'd14 : 4'd10);
  assign ends       = stirs_q && last_place && pass_q == 2'd3 && iteration_q == 2'd3;
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) expands_q <= 1'b0;
    else expands_q <= !clear_i && (key_i.valid || (expands_q && !ends));
  end
  always_ff @(posedge clk_i) begin
    if (clear_i) begin
      {t_q, slot_q, stirs_q, iteration_q, pass_q, place_q} <= '0;
    end else if (key_i.valid) begin
      t_q <= loaded(key_i.key, key_i.bits);
      {stirs_q, iteration_q, pass_q, place_q} <= '0;
      slot_q <= key_i.slot;
    end else if (expands_q) begin
      t_q     <= stirs_q ? {stirred, t_q[14:1]} : linear;
      place_q <= last_place ? '0 : place_q + (stirs_q ? 4'd1 : 4'd5);
      if (last_place) begin
        stirs_q <= !stirs_q || pass_q != 2'd3;
        if (stirs_q) pass_q <= pass_q + 1'b1;
        if (stirs_q && pass_q == 2'd3) iteration_q <= iteration_q + 1'b1;
      end
    end
  end

  // The key, its number of words, zeros.
  function automatic word_t [14:0] loaded(logic [255:0] key, key_bits_t bits);
    int unsigned n;
    n = !LongKeys || bits == 2'd0 ? 4 : bits == 2'd1 ? 6 : 8;
    for (int unsigned i = 0; i < 15; i++) loaded[i] = i < n && i < 8 ? key_word(key, i % 8) : i == n ? 32'(n) : '0;
  endfunction

  // T[4 i mod 15] is word i of its iteration, so T[i] is word 4 i mod 15, if that is below ten.
  logic [5:0] number;
  logic leaves;
  assign number = 6'({2'b0, place_q} << 2) % 6'd15;
  assign leaves = expands_q && stirs_q && pass_q == 2'd3 && number < 6'd10;

  // A word as it leaves; of the words with even numbers five bits are kept for those behind them.
  logic valid_q, valid2_q;
  logic [5:0] index_q, index2_q;
  word_t word_q, word2_q;
  logic [4:0][4:0] turns_q;
  logic [2:0] half;
  assign half = 3'(number >> 1);
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) {valid_q, valid2_q} <= '0;
    else {valid_q, valid2_q} <= clear_i ? '0 : {leaves, valid_q};
  end
  logic [4:0] turns2_q;
  word_t [1:0] fixed_q;
  always_ff @(posedge clk_i) begin
    if (clear_i) begin
      {word_q, index_q, turns_q} <= '0;
    end else begin
      word_q  <= stirred;
      index_q <= 6'd10 * {4'b0, iteration_q} + number;
      for (int unsigned i = 0; i < 5; i++) if (half == 3'(i) && !number[0]) turns_q[i] <= stirred[4:0];
    end
    word2_q  <= word_q;
    index2_q <= index_q;
    fixed_q  <= {runs(word_q | 32'd3), Fix[word_q[1:0]]};
    turns2_q <= turns_q[half_of(index_q)];
  end

  // Which word of its iteration, halved. All iterations begin with an even number.
  function automatic logic [2:0] half_of(logic [5:0] index);
    return 3'((index % 6'd10) >> 1);
  endfunction

  // Bit i where bits i to i - 9 are equal.
  function automatic word_t runs(word_t w);
    runs = '0;
    for (int unsigned i = 9; i < 32; i++) runs[i] = &w[i-:10] || ~|w[i-:10];
  endfunction

  // Bits inside of a run of ten, equal to their neighbours.
  function automatic word_t mask(word_t w, word_t tens);
    mask = '0;
    for (int unsigned i = 2; i < 31; i++) begin
      logic inside_run;
      inside_run = 1'b0;
      for (int unsigned top = i; top < i + 10 && top < 32; top++) inside_run |= tens[top];
      mask[i] = inside_run && w[i-1] == w[i] && w[i+1] == w[i];
    end
  endfunction

  word_t multiplies;
  logic mends;
  assign multiplies = word2_q | 32'd3;
  assign mends      = index2_q[0] && index2_q >= 6'd5 && index2_q <= 6'd35;
  assign valid_o    = valid2_q;
  assign slot_o     = slot_q;
  assign index_o    = index2_q;
  assign word_o     = mends ? multiplies ^ (turned(fixed_q[0], turns2_q) & mask(multiplies, fixed_q[1])) : word2_q;
endmodule
