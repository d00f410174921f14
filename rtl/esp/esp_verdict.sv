// The inner check of the inbound lane (RFC 4301 §5.2, RFC 4303 §3.4.4). It holds each decrypted packet until everything
// is known of it, and then lets it go or drops it.
//
//   plain --> frame_fifo --------------------------> give: ECN and DSCP into the TOS --> out
//       \---> ip_parser, esp_trailer -> inner ---\    ^
//                      \-> policy -> results ----> judge -> commit: the window takes the sequence number
//       opened, tag: from beside the cipher -----/    \-> drop
//
//   opened   what the SAD and the outer header said of the packet
//   tag      whether the ICV was right
//   inner    what the inner header and the trailer say
//
// No byte leaves before the ICV was right and the window took the sequence number. Packets keep their order. A packet's id
// travels with each of these parts. Simulation stops where parts of two packets would be put together. Only that check
// reads the id.
module esp_verdict
  import esp_pkg::*;
#(
  parameter int unsigned MaxBytes = 2048,  // of a packet
  parameter int unsigned Beats    = 512    // of the frame buffer
) (
  input  logic           clk_i,
  input  logic           rst_ni,
  input  logic           valid_i,
  output logic           ready_o,
  input  beat_t          beat_i,
  // They stay until done_o.
  input  logic           opened_valid_i,
  input  opened_t        opened_i,
  input  logic           tag_valid_i,
  input  logic           tag_ok_i,
  input  packet_id_t     tag_id_i,
  output logic           done_o,
  // To the policy and back. A result is valid for a cycle.
  output logic           lookup_valid_o,
  input  logic           lookup_ready_i,
  output policy_key_t    lookup_key_o,
  output packet_id_t     lookup_id_o,
  input  logic           result_valid_i,
  input  policy_result_t result_i,
  input  packet_id_t     result_id_i,
  // To the SAD, for the SA of opened_i. The answer is valid for a cycle.
  output logic           commit_valid_o,
  input  logic           commit_ready_i,
  output logic    [15:0] commit_bytes_o,
  input  logic           committed_i,
  input  drop_e          commit_refused_i,
  output logic           valid_o,
  input  logic           ready_i,
  output beat_t          beat_o,
  output user_t          user_o,
  output logic           drop_valid_o,
  input  logic           drop_ready_i,
  output drop_e          drop_reason_o
);
  localparam int unsigned Frames = 16;
  localparam int unsigned BeatWidth = $clog2(Beats) + 1;
  localparam logic [7:0] NextIpv4 = 8'd4, NextIpv6 = 8'd41, NextDummy = 8'd59;

  // What travels with the beats of a packet.
  typedef struct packed {
    logic       change;  // of the TOS, for ECN or DSCP
    logic       v6;
    logic [7:0] tos;
    logic [3:0] last_bytes;  // of its last beat, 0: 16
    user_t      user;
  } tag_t;
  logic entry_valid, take_valid, take_ready, frame_valid, frame_ready, frame_first, frame_last;
  drop_e entry_error;
  packet_id_t entry_id;
  logic [BeatWidth-1:0] take_beats, inner_beats_q;
  tag_t take_tag_q, frame_tag;
  block_t frame_data;
  frame_fifo #(
    .Beats(Beats),
    .MaxBytes(MaxBytes),
    .Frames(Frames),
    .TagWidth($bits(tag_t))
  ) u_frames (
    .clk_i,
    .rst_ni,
    .valid_i,
    .ready_o,
    .beat_i,
    .entry_valid_o(entry_valid),
    .entry_id_o(entry_id),
    .entry_bytes_o(),
    .entry_error_o(entry_error),
    .take_valid_i(take_valid),
    .take_ready_o(take_ready),
    .take_first_i('0),
    .take_beats_i(take_beats),
    .take_tag_i(take_tag_q),
    .valid_o(frame_valid),
    .ready_i(frame_ready),
    .data_o(frame_data),
    .first_o(frame_first),
    .last_o(frame_last),
    .tag_o(frame_tag)
  );

  logic parse_done, trailer_done;
  parse_t parse;
  packet_id_t parse_id_q;
  // The trailer is known three cycles before the header.
  localparam int unsigned TrailerAhead = 3;
  trailer_t trailer_in, trailer;
  trailer_t [TrailerAhead-1:0] trailers_q;
  logic trailer_in_done;
  logic [TrailerAhead-1:0] trailer_done_q;
  ip_parser u_parser (
    .clk_i,
    .rst_ni,
    .valid_i(valid_i && ready_o),
    .beat_i,
    .done_o (parse_done),
    .parse_o(parse)
  );
  esp_trailer u_trailer (
    .clk_i,
    .rst_ni,
    .valid_i  (valid_i && ready_o),
    .beat_i,
    .done_o   (trailer_in_done),
    .trailer_o(trailer_in)
  );
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      trailer_done_q <= '0;
      parse_id_q     <= '0;
    end else begin
      trailer_done_q <= {trailer_done_q[TrailerAhead-2:0], trailer_in_done};
      parse_id_q     <= parse_id_q + packet_id_t'(parse_done);
    end
  end
  always_ff @(posedge clk_i) trailers_q <= {trailers_q[TrailerAhead-2:0], trailer_in};
  assign trailer_done = trailer_done_q[TrailerAhead-1];
  assign trailer      = trailers_q[TrailerAhead-1];

  typedef struct packed {
    packet_id_t  id;
    logic        malformed;
    logic        v6;
    logic [7:0]  tos;
    logic [15:0] bytes;
    trailer_t    trailer;
  } inner_t;
  inner_t parsed, inner;
  logic inner_valid, result_valid;
  policy_result_t result;
  packet_id_t result_id;
  assign parsed = '{
      id: parse_id_q,
      malformed: parse.malformed,
      v6: parse.v6,
      tos: parse.tos,
      bytes: parse.bytes,
      trailer: trailer
  };
  // None of these three is ever full: frame_fifo has no entries for more packets.
  stream_fifo #(
    .Width($bits(inner_t)),
    .Depth(2 * Frames),
    .NeverFull(1'b1)
  ) u_inner (
    .clk_i,
    .rst_ni,
    .valid_i(parse_done),
    .ready_o(),
    .data_i (parsed),
    .valid_o(inner_valid),
    .ready_i(done_o),
    .data_o (inner),
    .count_o()
  );
  stream_fifo #(
    .Width($bits(packet_id_t) + $bits(policy_key_t)),
    .Depth(2 * Frames),
    .Extra(1'b1),
    .Block(1'b1),
    .NeverFull(1'b1)
  ) u_lookups (
    .clk_i,
    .rst_ni,
    .valid_i(parse_done),
    .ready_o(),
    .data_i ({parse_id_q, policy_key(parse, 1'b0, 1'b1)}),
    .valid_o(lookup_valid_o),
    .ready_i(lookup_ready_i),
    .data_o ({lookup_id_o, lookup_key_o}),
    .count_o()
  );
  stream_fifo #(
    .Width($bits(packet_id_t) + $bits(policy_result_t)),
    .Depth(2 * Frames),
    .NeverFull(1'b1)
  ) u_results (
    .clk_i,
    .rst_ni,
    .valid_i(result_valid_i),
    .ready_o(),
    .data_i ({result_id_i, result_i}),
    .valid_o(result_valid),
    .ready_i(done_o),
    .data_o ({result_id, result}),
    .count_o()
  );

  // ECN and DSCP of the packet that leaves (RFC 6040 §4.2, figure 4).
  logic [7:0] new_tos;
  logic [1:0] new_ecn;
  logic ecn_lost;
  always_comb begin
    ecn_lost = inner.tos[1:0] == 2'b00 && opened_i.tos[1:0] == 2'b11;
    new_ecn  = inner.tos[1:0];
    if (inner.tos[1:0] != 2'b00) begin
      if (inner.tos[1:0] == 2'b11 || opened_i.tos[1:0] == 2'b11) new_ecn = 2'b11;
      else if (opened_i.tos[1:0] == 2'b01) new_ecn = 2'b01;
    end
    new_tos = {opened_i.sa.dscp ? opened_i.tos[7:2] : inner.tos[7:2], new_ecn};
  end

  // The verdict on a packet whose ICV was right.
  logic malformed, allowed;
  drop_e verdict;
  assign malformed = entry_error != DropNone || inner.malformed || inner.bytes > inner.trailer.payload
                     || inner.v6 != (inner.trailer.next_header == NextIpv6);
  assign allowed   = result.hit && result.action == Protect && result.target == opened_i.sa.group;
  always_comb begin
    verdict = DropNone;
    if (!inner.trailer.sound) verdict = DropPadding;
    else if (inner.trailer.next_header == NextDummy) verdict = DropDummy;
    else if (!(inner.trailer.next_header inside {NextIpv4, NextIpv6})) verdict = DropNextHeader;
    else if (malformed) verdict = DropInner;
    else if (!allowed) verdict = DropSelector;
    else if (ecn_lost) verdict = DropEcn;
  end

  // What becomes of the oldest packet.
  typedef enum logic [2:0] {Judge, Commit, Committed, Give, Drop} state_e;
  state_e state_q;
  drop_e verdict_q;
  logic complete, good;
  assign complete       = tag_valid_i && opened_valid_i && inner_valid && result_valid && entry_valid;
  assign good           = verdict_q == DropNone;
  assign commit_valid_o = state_q == Commit;
  assign commit_bytes_o = good ? inner.bytes : '0;
  assign take_valid     = state_q == Give;
  assign take_beats     = good ? inner_beats_q : '0;
  assign drop_valid_o   = state_q == Drop;
  assign drop_reason_o  = verdict_q;
  assign done_o         = (state_q == Give && take_ready && good) || (state_q == Drop && drop_ready_i);

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      state_q <= Judge;
    end else begin
      unique case (state_q)
        Judge: if (complete) state_q <= tag_ok_i ? Commit : Give;
        Commit: if (commit_ready_i) state_q <= Committed;
        Committed: if (committed_i) state_q <= Give;
        Give: if (take_ready) state_q <= good ? Judge : Drop;
        Drop: if (drop_ready_i) state_q <= Judge;
      endcase
    end
  end

  always_ff @(posedge clk_i) begin
    if (state_q == Judge) begin
      verdict_q     <= tag_ok_i ? verdict : DropIcv;
      inner_beats_q <= BeatWidth'((inner.bytes + 16'd15) >> 4);
      take_tag_q    <= '{
          change: new_tos != inner.tos,
          v6: inner.v6,
          tos: new_tos,
          last_bytes: inner.bytes[3:0],
          user: '{unused: '0, row: opened_i.sa.row, protect: 1'b1, reason: DropNone, to_host: 1'b0}
      };
    end
    if (state_q == Committed && committed_i && commit_refused_i != DropNone) verdict_q <= commit_refused_i;
  end

  logic checks_q = 1'b0;  // from the first reset on
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      checks_q <= 1'b1;
    end else if (checks_q) begin
      assert (parse_done == trailer_done)
      else $error("TrailerAhead is not how far the trailer is ahead");
      assert (!(state_q == Judge && complete) || (inner.id == entry_id && inner.id == result_id
                                                  && inner.id == opened_i.id && inner.id == tag_id_i))
      else $error("a packet meets what is known of another one");
    end
  end

  // The TOS changes in the first beat, and with it an IPv4 checksum (RFC 1624).
  block_t patched;
  logic [15:0] word_old, word_new, sum_old;
  logic [17:0] sum;
  logic [16:0] once;
  logic [15:0] sum_new;
  always_comb begin
    word_old = {frame_data[7:0], frame_data[15:8]};
    word_new = frame_tag.v6 ? {word_old[15:12], frame_tag.tos, word_old[3:0]} : {word_old[15:8], frame_tag.tos};
    sum_old  = {frame_data[87:80], frame_data[95:88]};
    sum      = 18'(16'(~sum_old)) + 18'(16'(~word_old)) + 18'(word_new);
    once     = 17'(sum[15:0]) + 17'(sum[17:16]);
    sum_new  = ~(once[15:0] + 16'(once[16]));
    patched  = frame_data;
    if (frame_first && frame_tag.change) begin
      patched[15:0] = {word_new[7:0], word_new[15:8]};
      if (!frame_tag.v6) patched[95:80] = {sum_new[7:0], sum_new[15:8]};
    end
  end

  // A register between that and what follows.
  assign frame_ready = !valid_o || ready_i;
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) valid_o <= 1'b0;
    else if (frame_ready) valid_o <= frame_valid;
  end
  always_ff @(posedge clk_i) begin
    if (frame_ready) begin
      beat_o.data <= patched;
      beat_o.keep <= frame_last && frame_tag.last_bytes != '0 ? ~('1 << frame_tag.last_bytes) : '1;
      beat_o.last <= frame_last;
      user_o      <= frame_tag.user;
    end
  end
endmodule
