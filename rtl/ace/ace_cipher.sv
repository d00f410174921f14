// A block cipher of the adaptive cryptographic engine, with the port that all of them have (ace_port).
//
// Algorithm chooses Rijndael, Serpent, Twofish, RC6 or MARS. Blocks of one direction and key follow each other through the
// cipher's ring of rounds, so a core gives more blocks than one every so many rounds where they do not depend on each other.
module ace_cipher
  import ace_pkg::*;
#(
  parameter int unsigned Algorithm = Rijndael,
  parameter bit Decrypts = 1'b1,  // 0: only encrypts, and encrypt_i is not looked at
  parameter bit LongKeys = 1'b1,  // 0: only keys of 128 bits, and key_bits_i is not looked at
  parameter int unsigned Unroll = 0,  // rounds in the ring; 0 for the cipher's own number
  parameter int unsigned TagWidth = 8
) (
  input  logic                     clk_i,
  input  logic                     rst_ni,
  input  logic                     wipe_i,
  input  logic                     key_valid_i,
  output logic                     key_ready_o,
  input  logic      [       255:0] key_i,
  input  key_bits_t                key_bits_i,
  input  logic                     block_valid_i,
  output logic                     block_ready_o,
  input  block_t                   block_i,
  input  logic                     encrypt_i,
  input  logic      [TagWidth-1:0] tag_i,
  output logic                     out_valid_o,
  input  logic                     out_ready_i,
  output block_t                   block_o,
  output logic      [TagWidth-1:0] tag_o
);
  localparam int unsigned Rolled = Unroll == 0 ? default_unroll(Algorithm) : Unroll;
  localparam int unsigned Stages = Rolled * stages_of(Algorithm, LongKeys);

  function automatic int unsigned first(int unsigned bits, bit encrypt);
    return first_block(Algorithm, LongKeys, bits, encrypt);
  endfunction

  wipe_t wipe;
  key_command_t key;
  block_entry_t entry;
  logic entry_ready;
  block_result_t result;

  ace_port #(
    .TagWidth(TagWidth),
    .Depth(Stages < 12 ? 16 : 1 << $clog2(Stages + 4)),
    .FirstEncrypt('{first(0, 1'b1), first(1, 1'b1), first(2, 1'b1)}),
    .FirstDecrypt('{first(0, 1'b0), first(1, 1'b0), first(2, 1'b0)}),
    .Expand('{expansion(Algorithm, 0), expansion(Algorithm, 1), expansion(Algorithm, 2)})
  ) u_port (
    .clk_i,
    .rst_ni,
    .wipe_i,
    .key_valid_i,
    .key_ready_o,
    .key_i,
    .key_bits_i(LongKeys ? key_bits_i : '0),
    .block_valid_i,
    .block_ready_o,
    .block_i,
    .encrypt_i(encrypt_i || !Decrypts),
    .tag_i,
    .out_valid_o,
    .out_ready_i,
    .block_o,
    .tag_o,
    .wipe_o(wipe),
    .key_o(key),
    .entry_o(entry),
    .entry_ready_i(entry_ready),
    .result_i(result)
  );

  if (Algorithm == Rijndael) begin : g_rijndael
    ace_rijndael #(
      .Decrypts(Decrypts),
      .LongKeys(LongKeys),
      .Unroll(Rolled)
    ) u_cipher (
      .clk_i,
      .rst_ni,
      .wipe_i(wipe),
      .key_i(key),
      .entry_i(entry),
      .entry_ready_o(entry_ready),
      .result_o(result)
    );
  end else if (Algorithm == Serpent) begin : g_serpent
    ace_serpent #(
      .Decrypts(Decrypts),
      .LongKeys(LongKeys),
      .Unroll(Rolled)
    ) u_cipher (
      .clk_i,
      .rst_ni,
      .wipe_i(wipe),
      .key_i(key),
      .entry_i(entry),
      .entry_ready_o(entry_ready),
      .result_o(result)
    );
  end else if (Algorithm == Twofish) begin : g_twofish
    ace_twofish #(
      .Decrypts(Decrypts),
      .LongKeys(LongKeys)
    ) u_cipher (
      .clk_i,
      .rst_ni,
      .wipe_i(wipe),
      .key_i(key),
      .entry_i(entry),
      .entry_ready_o(entry_ready),
      .result_o(result)
    );
  end else if (Algorithm == Rc6) begin : g_rc6
    ace_rc6 #(
      .Decrypts(Decrypts),
      .LongKeys(LongKeys)
    ) u_cipher (
      .clk_i,
      .rst_ni,
      .wipe_i(wipe),
      .key_i(key),
      .entry_i(entry),
      .entry_ready_o(entry_ready),
      .result_o(result)
    );
  end else begin : g_mars
    ace_mars #(
      .Decrypts(Decrypts),
      .LongKeys(LongKeys)
    ) u_cipher (
      .clk_i,
      .rst_ni,
      .wipe_i(wipe),
      .key_i(key),
      .entry_i(entry),
      .entry_ready_o(entry_ready),
      .result_o(result)
    );
  end
endmodule
