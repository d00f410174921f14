// HMAC-SHA-256-128 (RFC 4868) by Units units side by side: packets are dealt out in turn and their tags come in order.
//
// One unit takes 33 cycles for 64 bytes, so eight of them take 0.97 beats a cycle. Messages come behind one
// another at full width: each unit has room for Beats of them, so that the next packet's flow on to the next unit
// while the packet before is hashed. A packet's states come on a handshake of their own, in four words.
module hmac_pool
  import esp_pkg::*;
#(
  parameter int unsigned Units = 4,
  parameter int unsigned Beats = 128  // a power of two, at least a packet's for full rate
) (
  input  logic         clk_i,
  input  logic         rst_ni,
  input  logic         state_valid_i,
  output logic         state_ready_o,
  input  logic [127:0] state_i,        // inner h0-h3, h4-h7, outer h0-h3, h4-h7; the first in the highest bits
  input  logic         msg_valid_i,
  output logic         msg_ready_o,
  input  beat_t        msg_i,          // every beat full but the last
  output logic         tag_valid_o,
  input  logic         tag_ready_i,
  output logic [127:0] tag_o           // the first byte in the highest bits
);
  localparam int unsigned UnitWidth = Units > 1 ? $clog2(Units) : 1;
  localparam int unsigned CountWidth = $clog2(KeepWidth);

  typedef logic [UnitWidth-1:0] unit_t;
  function automatic unit_t next(unit_t unit);
    return unit == unit_t'(Units - 1) ? '0 : unit + 1'b1;
  endfunction

  // Whose turn it is: to get a command, beats, and to give a tag.
  unit_t cmd_unit_q, msg_unit_q, tag_unit_q;
  logic [Units-1:0] cmd_ready, msg_ready, tag_valid;
  logic [Units-1:0][127:0] tag;

  // Four words make a command.
  logic [3:0][127:0] states_q;
  logic [1:0] words_q;
  logic cmd_valid_q, cmd_taken;
  assign state_ready_o = !cmd_valid_q;
  assign cmd_taken     = cmd_valid_q && cmd_ready[cmd_unit_q];
  assign msg_ready_o   = msg_ready[msg_unit_q];
  assign tag_valid_o   = tag_valid[tag_unit_q];
  assign tag_o         = tag[tag_unit_q];

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      words_q     <= '0;
      cmd_valid_q <= 1'b0;
      cmd_unit_q  <= '0;
      msg_unit_q  <= '0;
      tag_unit_q  <= '0;
    end else begin
      if (state_valid_i && state_ready_o) begin
        words_q     <= words_q + 1'b1;
        cmd_valid_q <= words_q == 2'd3;
      end else if (cmd_taken) begin
        cmd_valid_q <= 1'b0;
      end
      if (cmd_taken) cmd_unit_q <= next(cmd_unit_q);
      if (msg_valid_i && msg_ready_o && msg_i.last) msg_unit_q <= next(msg_unit_q);
      if (tag_valid_o && tag_ready_i) tag_unit_q <= next(tag_unit_q);
    end
  end

  always_ff @(posedge clk_i) if (state_valid_i && state_ready_o) states_q <= {states_q[2:0], state_i};

  // Four bits tell the bytes of a beat, so that it fits into four block RAMs.
  logic [CountWidth-1:0] bytes_less_one;
  assign bytes_less_one = CountWidth'($countones(msg_i.keep) - 1);

  for (genvar i = 0; i < Units; i++) begin : g_unit
    logic                  valid, ready;
    logic [DataWidth-1:0]  data;
    logic [CountWidth-1:0] bytes;
    logic                  last;
    logic [$clog2(Beats+2)-1:0] count;
    stream_fifo #(
      .Width(DataWidth + CountWidth + 1),
      .Depth(Beats)
    ) u_fifo (
      .clk_i,
      .rst_ni,
      .valid_i(msg_valid_i && msg_unit_q == unit_t'(i)),
      .ready_o(msg_ready[i]),
      .data_i({msg_i.data, bytes_less_one, msg_i.last}),
      .valid_o(valid),
      .ready_i(ready),
      .data_o({data, bytes, last}),
      .count_o(count)
    );

    beat_t beat;
    assign beat = '{data: data, keep: ~(~KeepWidth'(1) << bytes), last: last};

    logic [127:0] rest;
    hmac_unit u_unit (
      .clk_i,
      .rst_ni,
      .cmd_valid_i(cmd_valid_q && cmd_unit_q == unit_t'(i)),
      .cmd_ready_o(cmd_ready[i]),
      .inner_i({states_q[3], states_q[2]}),
      .outer_i({states_q[1], states_q[0]}),
      .msg_valid_i(valid),
      .msg_ready_o(ready),
      .msg_i(beat),
      .icv_valid_o(tag_valid[i]),
      .icv_ready_i(tag_ready_i && tag_unit_q == unit_t'(i)),
      .icv_o({tag[i], rest})
    );
    logic unused;
    assign unused = &{1'b0, rest, count};
  end
endmodule
