// AES key expansion, one round key a cycle.
//
// start_i comes with the first half of the raw key (all of an AES-128 key), the second half follows in the next cycle.
// Round key i is at key_o i + 1 cycles after start_i. For AES-128 its round keys 1 to 10 are numbers 5 to 14 and numbers 1
// to 4 mean nothing. The next start may come 15 cycles after the last.
//
// Word j of a new round key is S(last word) ^ w[0] ^ .. ^ w[j] of an older one, so these sums are made a cycle ahead and
// only the S-box and one XOR lie in the loop. rcon is in the sums already.
module aes_expand
  import aes_pkg::*, esp_pkg::*;
(
  input  logic   clk_i,
  input  logic   rst_ni,
  input  logic   start_i,
  input  logic   aes128_i,
  input  block_t raw_i,
  output block_t key_o
);
  typedef logic [3:0][31:0] words_t;  // word 0 of the standard is [3]

  logic [3:0] index_q;  // of the round key that is made in this cycle
  logic       aes128_q;
  byte_t      rcon_q;
  words_t     key_q, sums_q;

  logic rotate, fresh;
  // What is made for AES-256 has RotWord in every other round key.
  assign rotate = aes128_q || !index_q[0];
  assign fresh  = index_q == 4'd1;

  logic [31:0] last, sub, word;
  assign last = key_q[0];
  assign sub  = {Sbox[last[31:24]], Sbox[last[23:16]], Sbox[last[15:8]], Sbox[last[7:0]]};
  assign word = rotate ? {sub[23:0], sub[31:24]} : sub;

  function automatic words_t prefix(words_t w);
    return {w[3], w[3] ^ w[2], w[3] ^ w[2] ^ w[1], w[3] ^ w[2] ^ w[1] ^ w[0]};
  endfunction

  // The sums of the round key after next (AES-256), of the next (AES-128).
  words_t sums128;
  assign sums128 = prefix(sums_q) ^ {word, 32'b0, word, 32'b0};

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) index_q <= '0;
    else if (start_i) index_q <= 4'd1;
    else if (index_q != '0) index_q <= index_q == 4'(Rounds) ? '0 : index_q + 1'b1;
  end

  logic make, rcon_next;
  assign make      = aes128_q ? index_q >= 4'd5 : index_q >= 4'd2;
  // The sums made now serve the next round key (AES-256: index + 1, whose rotation is opposite).
  assign rcon_next = aes128_q || index_q[0];

  always_ff @(posedge clk_i) begin
    if (start_i) aes128_q <= aes128_i;

    if (start_i || (fresh && !aes128_q)) key_q <= raw_i;
    else if (make) key_q <= sums_q ^ {4{word}};

    if (fresh || (make && !aes128_q)) sums_q <= prefix(key_q) ^ {4{rcon_next ? {rcon_q, 24'b0} : 32'b0}};
    else if (make) sums_q <= sums128 ^ {4{rcon_q, 24'b0}};

    if (start_i) rcon_q <= 8'd1;
    else if (fresh || (make && rcon_next)) rcon_q <= xtime(rcon_q);
  end

  assign key_o = key_q;
endmodule
