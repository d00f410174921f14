// Takes frames whole. Each frame makes one entry, in order and with its number; the taker looks at the oldest entry and says which of its
// beats are to come out, or none. A frame that is too long or has a wrong keep takes no room: its entry says why.
//
// Memory that a frame took is free again beat by beat as the frame leaves. ready_o does not depend on ready_i. An entry is
// there three cycles after its frame's last beat.
module frame_fifo #(
  parameter int unsigned Beats    = 512,   // a power of two
  parameter int unsigned MaxBytes = 2048,  // of a frame, less than the memory holds
  parameter int unsigned Frames   = 16,    // entries, a power of two
  parameter int unsigned TagWidth = 1,
  parameter bit          Slice    = 1'b0,  // behind the output, a cycle later: ready_i goes no further than that
  localparam int unsigned BeatWidth = $clog2(Beats) + 1
) (
  input  logic                clk_i,
  input  logic                rst_ni,
  input  logic                valid_i,
  output logic                ready_o,
  input  esp_pkg::beat_t      beat_i,
  output logic                entry_valid_o,
  output esp_pkg::packet_id_t entry_id_o,
  output logic [        15:0] entry_bytes_o,
  output esp_pkg::drop_e      entry_error_o,
  // Only while there is an entry.
  input  logic                take_valid_i,
  output logic                take_ready_o,
  input  logic [BeatWidth-1:0] take_first_i, // the first beat to come out
  input  logic [BeatWidth-1:0] take_beats_i,  // 0: none, the frame is dropped
  input  logic [TagWidth-1:0] take_tag_i,    // travels with the beats
  output logic                valid_o,
  input  logic                ready_i,
  output esp_pkg::block_t     data_o,
  output logic                first_o,
  output logic                last_o,
  output logic [TagWidth-1:0] tag_o
);
  import esp_pkg::*;
  localparam int unsigned AddrWidth = $clog2(Beats);
  // One bit more than an address: full is not empty.
  typedef logic [AddrWidth:0] pointer_t;

  // A beat is never read in the cycle in which it is written.
  (* no_rw_check *)
  block_t mem[Beats];

  // What a beat is on its own.
  logic beat_valid_q, keep_ok_q;
  beat_t beat_q;
  logic [4:0] beat_bytes_q;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) beat_valid_q <= 1'b0;
    else if (ready_o) beat_valid_q <= valid_i;
  end

  always_ff @(posedge clk_i) begin
    if (ready_o) begin
      beat_q       <= beat_i;
      beat_bytes_q <= 5'($countones(beat_i.keep));
      // Ones from the first byte on: adding one to them carries through.
      keep_ok_q <= beat_i.last ? beat_i.keep[0] && (beat_i.keep & (beat_i.keep + 1'b1)) == '0 : &beat_i.keep;
    end
  end

  // Writing.
  pointer_t start_q, write_q, read_q;
  logic [15:0] bytes_q, bytes_d, room_q;  // room: bytes that this frame may still bring
  drop_e error_q, error_d;
  logic put, can_put, full_q, entry_ready, unused_keep;
  pointer_t stored, beats_q, beats_d;  // beats: of this frame

  assign stored      = write_q - read_q;
  assign can_put     = entry_ready && !full_q;
  assign ready_o     = !beat_valid_q || can_put;
  assign put         = beat_valid_q && can_put;
  assign bytes_d     = bytes_q + 16'(beat_bytes_q);
  assign beats_d     = beats_q + 1'b1;
  assign unused_keep = &{1'b0, beat_q.keep};

  always_comb begin
    error_d = error_q;
    if (error_q == DropNone) begin
      if (!keep_ok_q) error_d = DropMalformed;
      else if (room_q[15:5] == '0 && room_q[4:0] < beat_bytes_q) error_d = DropTooLong;
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      start_q <= '0;
      write_q <= '0;
      bytes_q <= '0;
      beats_q <= '0;
      room_q  <= 16'(MaxBytes);
      error_q <= DropNone;
      full_q  <= 1'b0;
    end else begin
      // What leaves counts a cycle later.
      full_q <= stored[AddrWidth] || (put && &stored[AddrWidth-1:0]);
      if (put) begin
        bytes_q <= beat_q.last || error_d != DropNone ? '0 : bytes_d;
        beats_q <= beat_q.last || error_d != DropNone ? '0 : beats_d;
        room_q  <= beat_q.last || error_d != DropNone ? 16'(MaxBytes) : room_q - 16'(beat_bytes_q);
        error_q <= beat_q.last ? DropNone : error_d;
        write_q <= error_d == DropNone ? write_q + 1'b1 : start_q;
        if (beat_q.last && error_d == DropNone) start_q <= write_q + 1'b1;
      end
    end
  end

  always_ff @(posedge clk_i) if (put) mem[write_q[AddrWidth-1:0]] <= beat_q.data;

  packet_id_t id_q;
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) id_q <= '0;
    else id_q <= id_q + packet_id_t'(put && beat_q.last);
  end

  logic taken;
  pointer_t frame_beats;
  logic [$clog2(Frames + 2)-1:0] unused_count;
  stream_fifo #(
    .Width($bits(packet_id_t) + $bits(pointer_t) + 16 + $bits(drop_e)),
    .Depth(Frames)
  ) u_entries (
    .clk_i,
    .rst_ni,
    .valid_i(put && beat_q.last),
    .ready_o(entry_ready),
    .data_i ({id_q, error_d == DropNone ? {beats_d, error_d, bytes_d} : {pointer_t'(0), error_d, 16'd0}}),
    .valid_o(entry_valid_o),
    .ready_i(taken),
    .data_o ({entry_id_o, frame_beats, entry_error_o, entry_bytes_o}),
    .count_o(unused_count)
  );

  // Reading: a register behind the memory's, so that its delay is not in the way.
  pointer_t end_q, left_q;
  logic idle_q, final_q;  // left_q is 0, 1: in flags, for much waits for them
  logic fresh_q, get, move;
  logic [TagWidth-1:0] tag_q;
  logic stage_valid_q, stage_first_q, stage_last_q;
  logic [TagWidth-1:0] stage_tag_q;
  block_t stage_data_q, out_data_q;
  logic out_valid_q, out_ready, out_first_q, out_last_q;
  logic [TagWidth-1:0] out_tag_q;

  assign take_ready_o = idle_q;
  assign taken        = take_valid_i && take_ready_o;
  assign move         = !out_valid_q || out_ready;
  assign get          = !idle_q && (!stage_valid_q || move);

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      read_q        <= '0;
      left_q        <= '0;
      idle_q        <= 1'b1;
      final_q       <= 1'b0;
      stage_valid_q <= 1'b0;
      out_valid_q   <= 1'b0;
    end else begin
      if (taken) begin
        left_q  <= take_beats_i;
        idle_q  <= take_beats_i == '0;
        final_q <= take_beats_i == pointer_t'(1);
        read_q  <= read_q + (take_beats_i == '0 ? frame_beats : take_first_i);
      end else if (get) begin
        left_q  <= left_q - 1'b1;
        idle_q  <= final_q;
        final_q <= left_q == pointer_t'(2);
        read_q  <= final_q ? end_q : read_q + 1'b1;
      end
      stage_valid_q <= get || (stage_valid_q && !move);
      out_valid_q   <= stage_valid_q || (out_valid_q && !out_ready);
    end
  end

  always_ff @(posedge clk_i) begin
    if (taken) begin
      end_q <= read_q + frame_beats;
      tag_q <= take_tag_i;
    end
    if (taken || get) fresh_q <= taken;
    if (get) begin
      stage_data_q  <= mem[read_q[AddrWidth-1:0]];
      stage_first_q <= fresh_q;
      stage_last_q  <= final_q;
      stage_tag_q   <= tag_q;
    end
    if (move) begin
      out_data_q  <= stage_data_q;
      out_first_q <= stage_first_q;
      out_last_q  <= stage_last_q;
      out_tag_q   <= stage_tag_q;
    end
  end

  if (Slice) begin : g_slice
    stream_slice #(
      .Width($bits(block_t) + 2 + TagWidth),
      .OutputRegister(1'b1)
    ) u_slice (
      .clk_i,
      .rst_ni,
      .valid_i(out_valid_q),
      .ready_o(out_ready),
      .data_i ({out_data_q, out_first_q, out_last_q, out_tag_q}),
      .valid_o,
      .ready_i,
      .data_o ({data_o, first_o, last_o, tag_o})
    );
  end else begin : g_plain
    assign out_ready = ready_i;
    assign valid_o   = out_valid_q;
    assign {data_o, first_o, last_o, tag_o} = {out_data_q, out_first_q, out_last_q, out_tag_q};
  end

  if (2 ** AddrWidth != Beats || (MaxBytes + 15) / 16 >= Beats) begin : g_too_small
    $error("Beats must be a power of two and more than a frame of MaxBytes takes");
  end
endmodule
