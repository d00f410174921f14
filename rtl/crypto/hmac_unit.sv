// HMAC (RFC 2104) of one message after another with SHA-256 or SHA-1, from the states behind the inner and outer key
// pads, which whoever installs the key computes once.
//
// A command with the states comes first, then its message: beats in stream order, every one full but the last, 1 to
// 65,471 bytes in all. A message of n blocks with its padding takes n + 1 blocks of the core and 14 cycles (SHA-1) or
// 13 (SHA-256) for the change of states and the way of the inner hash into the outer block. The next command and the
// first 64 bytes behind it are taken while the outer hash runs, so that its blocks follow at once.
module hmac_unit
  import esp_pkg::*;
#(
  parameter bit Sha1 = 1'b0,
  localparam int unsigned Width = Sha1 ? 160 : 256
) (
  input  logic             clk_i,
  input  logic             rst_ni,
  input  logic             cmd_valid_i,
  output logic             cmd_ready_o,
  input  logic [Width-1:0] inner_i,      // the first word of the state in the highest bits
  input  logic [Width-1:0] outer_i,
  input  logic             msg_valid_i,
  output logic             msg_ready_o,
  input  beat_t            msg_i,
  output logic             icv_valid_o,
  input  logic             icv_ready_i,
  output logic [Width-1:0] icv_o         // the first byte in the highest bits
);
  // Between the core and what it hashes.
  logic core_valid, core_ready, core_done;
  logic [2:0] core_index;
  logic [63:0] core_words;
  logic core_last;
  logic [Width-1:0] core_state, core_hash;

  if (Sha1) begin : g_sha1
    sha1_core u_core (
      .clk_i,
      .rst_ni,
      .valid_i(core_valid),
      .ready_o(core_ready),
      .index_o(core_index),
      .words_i(core_words),
      .last_i(core_last),
      .state_i(core_state),
      .valid_o(core_done),
      .state_o(core_hash)
    );
  end else begin : g_sha256
    sha256_core u_core (
      .clk_i,
      .rst_ni,
      .valid_i(core_valid),
      .ready_o(core_ready),
      .index_o(core_index),
      .words_i(core_words),
      .last_i(core_last),
      .state_i(core_state),
      .valid_o(core_done),
      .state_o(core_hash)
    );
  end

  // The command, kept until the outer block has entered the core.
  logic active_q;
  logic [Width-1:0] inner_q, outer_q;
  assign cmd_ready_o = !active_q;

  // The core gets the message's blocks (outer_phase_q = 0), then the one of the outer hash.
  logic outer_phase_q;
  logic outer_taken;
  assign outer_taken = outer_phase_q && core_valid && core_ready;

  // Gathers a block: the message, then its padding (FIPS 180-4, 5.1.1).
  typedef enum logic [1:0] {
    Message,
    PadFirst,  // the bit 1 comes first in this beat
    Pad,
    Done
  } fill_e;
  fill_e fill_q;
  logic [1:0] beat_q;
  logic full_q, block_last_q;
  logic [15:0] bytes_q, bytes;  // with the 64 of the inner key pad
  logic write, length_fits, block_complete;
  block_t beat;
  logic [127:0] block_q[4];

  assign msg_ready_o = active_q && fill_q == Message && !full_q;
  assign write       = active_q && !full_q && (fill_q == Message ? msg_valid_i : fill_q != Done);
  assign bytes       = bytes_q + (fill_q == Message ? 16'(kept_bytes(msg_i.keep)) : '0);

  // The length stands at the end of the block's last beat if bit 1 and message leave room.
  assign length_fits = beat_q == 2'd3 && (fill_q != Message || (msg_i.last && !msg_i.keep[7]));
  always_comb begin
    beat = '0;
    if (fill_q == Message) begin
      beat = to_block(msg_i.data & keep_mask(msg_i.keep));
      // Bit 1 behind the last byte: the first keep that is 0.
      for (int unsigned i = 1; i < KeepWidth; i++) begin
        if (!msg_i.keep[i] && msg_i.keep[i-1]) beat[127-8*i] = 1'b1;
      end
    end else if (fill_q == PadFirst) begin
      beat[127] = 1'b1;
    end
    if (length_fits) beat[18:3] = bytes;  // in bits
  end

  function automatic logic [127:0] keep_mask(logic [KeepWidth-1:0] keep);
    for (int unsigned i = 0; i < KeepWidth; i++) keep_mask[8*i+:8] = {8{keep[i]}};
  endfunction

  assign block_complete = write && beat_q == 2'd3;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      active_q <= 1'b0;
      full_q   <= 1'b0;
    end else begin
      if (cmd_valid_i && cmd_ready_o) active_q <= 1'b1;
      else if (outer_taken) active_q <= 1'b0;
      if (block_complete) full_q <= 1'b1;
      else if (core_ready && !outer_phase_q) full_q <= 1'b0;
    end
  end

  always_ff @(posedge clk_i) begin
    if (cmd_valid_i && cmd_ready_o) begin
      inner_q <= inner_i;
      outer_q <= outer_i;
      fill_q  <= Message;
      beat_q  <= '0;
      bytes_q <= 16'd64;
    end else if (write) begin
      beat_q  <= beat_q + 1'b1;
      bytes_q <= bytes;
      if (length_fits) fill_q <= Done;
      else if (fill_q == PadFirst) fill_q <= Pad;
      else if (fill_q == Message && msg_i.last) fill_q <= msg_i.keep[KeepWidth-1] ? PadFirst : Pad;
      block_last_q <= length_fits;
    end
    if (write) block_q[beat_q] <= beat;
  end

  // The inner hash, until the outer block has been made of it.
  logic inner_valid_q;
  logic [Width-1:0] inner_hash_q;
  logic running_outer_q;  // the core's next result is a message's ICV
  logic [511:0] outer_block;
  assign outer_block = {inner_hash_q, 1'b1, {512 - 1 - Width - 64{1'b0}}, 64'(512 + Width)};

  assign core_valid = outer_phase_q ? inner_valid_q && !icv_valid_o : full_q;
  assign core_last  = outer_phase_q || block_last_q;
  assign core_state = outer_phase_q ? outer_q : inner_q;
  assign core_words = outer_phase_q ? outer_block[511-64*core_index-:64] :
      core_index[0] ? block_q[core_index[2:1]][63:0] : block_q[core_index[2:1]][127:64];

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      outer_phase_q   <= 1'b0;
      inner_valid_q   <= 1'b0;
      running_outer_q <= 1'b0;
      icv_valid_o     <= 1'b0;
    end else begin
      if (core_ready) outer_phase_q <= !outer_phase_q && block_last_q;
      if (core_done) running_outer_q <= !running_outer_q;
      if (core_done && !running_outer_q) inner_valid_q <= 1'b1;
      else if (outer_taken) inner_valid_q <= 1'b0;
      if (core_done && running_outer_q) icv_valid_o <= 1'b1;
      else if (icv_ready_i) icv_valid_o <= 1'b0;
    end
  end

  always_ff @(posedge clk_i) begin
    if (core_done && !running_outer_q) inner_hash_q <= core_hash;
    if (core_done && running_outer_q) icv_o <= core_hash;
  end
endmodule
