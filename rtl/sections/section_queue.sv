// The queue of one exit: takes a beat every cycle, whatever the port behind it does. A packet that comes when there may
// be no room for all of it is dropped and counted, so that a port that stands still does not stop the others.
module section_queue #(
  parameter int unsigned Depth    = 512,  // beats, a power of two
  parameter int unsigned MaxBeats = 136   // of a packet
) (
  input  logic           clk_i,
  input  logic           rst_ni,
  input  logic           s_valid_i,
  input  esp_pkg::beat_t s_beat_i,
  output logic           m_valid_o,
  input  logic           m_ready_i,
  output esp_pkg::beat_t m_beat_o,
  output logic           dropped_o
);
  import esp_pkg::*;
  // The count is of the cycle before, in which one more beat may have come.
  localparam int unsigned RoomMax = Depth - MaxBeats - 1;

  logic first_q, drop_q, room_q, drop, ready;
  logic [$clog2(Depth+3)-1:0] count;

  assign drop      = first_q ? !room_q : drop_q;
  assign dropped_o = s_valid_i && s_beat_i.last && drop;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      first_q <= 1'b1;
      drop_q  <= 1'b0;
      room_q  <= 1'b1;
    end else begin
      room_q <= 32'(count) <= RoomMax;
      if (s_valid_i) begin
        first_q <= s_beat_i.last;
        drop_q  <= drop;
      end
    end
  end

  stream_fifo #(
    .Width($bits(beat_t)),
    .Depth(Depth),
    .Extra(1'b1)
  ) u_beats (
    .clk_i,
    .rst_ni,
    .valid_i(s_valid_i && !drop),
    .ready_o(ready),
    .data_i (s_beat_i),
    .valid_o(m_valid_o),
    .ready_i(m_ready_i),
    .data_o (m_beat_o),
    .count_o(count)
  );

  always_ff @(posedge clk_i) begin
    if (s_valid_i && !drop) begin
      assert (ready)
      else $error("a packet has more than MaxBeats");
    end
  end

  if (MaxBeats + 2 > Depth) begin : g_too_shallow
    $error("Depth must be more than a packet of MaxBeats takes");
  end
endmodule
