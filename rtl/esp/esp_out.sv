// The outbound lane: IP packets come in, ESP in tunnel mode leaves (and what bypasses, and what is for the host).
//
//   esp_front -> esp_encap -> esp_cipher -> esp_assemble -> frame_merge --> out
//     |  sa_out      |                          ^              ^
//     |              +------- outer ------------+              |
//     +-------------- aside: bypass, to the host --------------+
//
// Protected packets keep their order. So do those that go aside, which may overtake the others.
//
//   answer      what sa_out says of a packet; it is the job of esp_encap
//   outer       the job again, for the headers that esp_assemble puts in front
//   cipher_out  the encrypted body; behind a register it is sealed
//   no_key      a packet whose row had another key by then: esp_assemble dropped it
//   left        a frame that left; drops are counted in cycles without one
module esp_out #(
  parameter int unsigned Entries   = 64,    // of the policy
  parameter int unsigned Rows      = 1024,  // of the SAD
  parameter int unsigned HmacUnits = 0,     // 0: AES-GCM only
  parameter bit          Gcm       = 1'b1,  // 0: AES-CTR with HMAC only
  parameter int unsigned MaxBytes  = 2048,  // of a frame
  parameter int unsigned Beats     = 512,   // of the frame buffer
  parameter int unsigned OutDepth  = Beats, // behind the cipher
  parameter int unsigned PolicyPiece = 9,   // bits: 9 for block RAM, 4 for LUTs
  // Of the cipher; what synthesis takes is in rtl/syn.
  parameter int unsigned RoundLatency = 2,
  parameter int unsigned SboxKind     = 0,
  parameter int unsigned GhashStages  = 3,
  parameter int unsigned GhashLeaf    = 32
) (
  input  logic                 clk_i,
  input  logic                 rst_ni,
  input  logic                 enable_i,     // whether frames are taken
  input  logic                 exceptions_i, // what lacks an SA or is too big goes to the host
  // Configuration: one of each table.
  input  logic                 cfg_policy_valid_i,
  output logic                 cfg_policy_ready_o,
  input  logic                 cfg_sa_valid_i,
  output logic                 cfg_sa_ready_o,
  input  logic                 cfg_key_valid_i,
  output logic                 cfg_key_ready_o,
  input  esp_pkg::row_t        cfg_row_i,
  input  logic           [5:0] cfg_word_i,
  input  logic          [31:0] cfg_data_i,
  input  logic                 snap_valid_i,
  output logic                 snap_ready_o,
  input  esp_pkg::row_t        snap_row_i,
  output logic         [191:0] snap_o,
  input  logic                 valid_i,
  output logic                 ready_o,
  input  esp_pkg::beat_t       beat_i,
  output logic                 valid_o,
  input  logic                 ready_i,
  output esp_pkg::beat_t       beat_o,
  output esp_pkg::user_t       user_o,
  // One frame is done with: it left, or was dropped.
  output logic                 count_valid_o,
  output esp_pkg::drop_e       count_reason_o,
  output logic          [15:0] count_bytes_o,
  output logic                 event_valid_o,
  output esp_pkg::event_e      event_o,
  output esp_pkg::row_t        event_row_o
);
  import esp_pkg::*;
  localparam int unsigned BeatWidth = $clog2(Beats) + 1;

  // What the SAD and the outer header need of a packet.
  typedef struct packed {
    logic        malformed;
    logic        v6;
    logic        dont_fragment;
    logic [7:0]  tos;
    logic [19:0] flow_label;
    logic [15:0] bytes;
  } facts_t;

  parse_t parse;
  facts_t parsed, facts;
  policy_result_t result;
  drop_e frame_error;
  fate_t fate;
  assign parsed = '{
      malformed: parse.malformed,
      v6: parse.v6,
      dont_fragment: parse.dont_fragment,
      tos: parse.tos,
      flow_label: parse.flow_label,
      bytes: parse.bytes
  };

  always_comb begin
    fate = '0;
    if (frame_error != DropNone) begin
      fate.reason = frame_error;
    end else if (facts.malformed) begin
      fate.reason = DropMalformed;
    end else if (!result.hit) begin
      fate.reason = DropNoPolicy;
    end else if (result.action == Discard) begin
      fate.reason = DropPolicy;
    end else begin
      fate.ask     = result.action == Protect;
      fate.keep    = 1'b1;
      fate.to_host = result.action == ToHost;
    end
  end

  logic sa_valid, sa_ready, answer_valid, answer_ready, sa_event_valid;
  logic job_valid, job_ready, frame_valid, frame_ready, frame_last, aside_valid, drop_valid, drop_ready;
  drop_e refused, drop_reason;
  event_e sa_event;
  seal_job_t answer, job;
  block_t frame_data;
  beat_t aside;
  user_t aside_user;
  logic [1:0] merge_ready;
  logic [BeatWidth-1:0] frame_beats_q;
  always_ff @(posedge clk_i) frame_beats_q <= BeatWidth'((facts.bytes + 16'd15) >> 4);

  esp_front #(
    .Outbound(1'b1),
    .Entries(Entries),
    .PolicyPiece(PolicyPiece),
    .MaxBytes(MaxBytes),
    .Beats(Beats),
    .AsideExtra(1'b1),
    .facts_t(facts_t),
    .answer_t(seal_job_t)
  ) u_front (
    .clk_i,
    .rst_ni,
    .enable_i,
    .cfg_valid_i(cfg_policy_valid_i),
    .cfg_ready_o(cfg_policy_ready_o),
    .cfg_row_i,
    .cfg_word_i,
    .cfg_data_i,
    .valid_i,
    .ready_o,
    .beat_i,
    .parse_o(parse),
    .facts_i(parsed),
    .error_o(frame_error),
    .facts_o(facts),
    .result_o(result),
    .fate_i(fate),
    .sa_valid_o(sa_valid),
    .sa_ready_i(sa_ready),
    .answer_valid_i(answer_valid),
    .answer_ready_o(answer_ready),
    .answer_i(answer),
    .refused_i(refused),
    .exception_i(exceptions_i && refused inside {DropNoSa, DropTooBig}),
    .job_valid_o(job_valid),
    .job_ready_i(job_ready),
    .answer_o(job),
    .body_first_i('0),
    .body_beats_i(frame_beats_q),
    .body_valid_o(frame_valid),
    .body_ready_i(frame_ready),
    .body_data_o(frame_data),
    .body_last_o(frame_last),
    .aside_valid_o(aside_valid),
    .aside_ready_i(merge_ready[1]),
    .aside_beat_o(aside),
    .aside_user_o(aside_user),
    .drop_valid_o(drop_valid),
    .drop_ready_i(drop_ready),
    .drop_reason_o(drop_reason),
    .other_valid_i(1'b0),
    .other_ready_o(),
    .other_key_i('0),
    .other_id_i('0),
    .other_valid_o(),
    .other_result_o(),
    .other_id_o()
  );

  sa_out #(
    .Rows(Rows)
  ) u_sa (
    .clk_i,
    .rst_ni,
    .cfg_valid_i(cfg_sa_valid_i),
    .cfg_ready_o(cfg_sa_ready_o),
    .cfg_row_i,
    .cfg_word_i,
    .cfg_data_i,
    .snap_valid_i,
    .snap_ready_o,
    .snap_row_i,
    .snap_o,
    .valid_i(sa_valid),
    .ready_o(sa_ready),
    .ask_i('{
        row: result.target,
        generation: result.generation,
        v6: facts.v6,
        dont_fragment: facts.dont_fragment,
        tos: facts.tos,
        flow_label: facts.flow_label,
        bytes: facts.bytes
    }),
    .valid_o(answer_valid),
    .ready_i(answer_ready),
    .refused_o(refused),
    .job_o(answer),
    .event_valid_o(sa_event_valid),
    .event_o(sa_event)
  );

  logic outer_valid, outer_ready, encap_cmd_valid, encap_cmd_ready, encap_body_valid, encap_body_ready;
  logic cmd_valid, cmd_ready, body_valid, body_ready;
  outer_t outer;
  cipher_cmd_t encap_cmd, cmd;
  beat_t encap_body, body;
  esp_encap u_encap (
    .clk_i,
    .rst_ni,
    .job_valid_i(job_valid),
    .job_ready_o(job_ready),
    .job_i(job),
    .valid_i(frame_valid),
    .ready_o(frame_ready),
    .data_i(frame_data),
    .last_i(frame_last),
    .outer_valid_o(outer_valid),
    .outer_ready_i(outer_ready),
    .outer_o(outer),
    .cmd_valid_o(encap_cmd_valid),
    .cmd_ready_i(encap_cmd_ready),
    .cmd_o(encap_cmd),
    .body_valid_o(encap_body_valid),
    .body_ready_i(encap_body_ready),
    .body_o(encap_body)
  );
  stream_slice #(
    .Width($bits(cipher_cmd_t))
  ) u_cmd_slice (
    .clk_i,
    .rst_ni,
    .valid_i(encap_cmd_valid),
    .ready_o(encap_cmd_ready),
    .data_i (encap_cmd),
    .valid_o(cmd_valid),
    .ready_i(cmd_ready),
    .data_o (cmd)
  );
  stream_slice #(
    .Width($bits(beat_t))
  ) u_body_slice (
    .clk_i,
    .rst_ni,
    .valid_i(encap_body_valid),
    .ready_o(encap_body_ready),
    .data_i (encap_body),
    .valid_o(body_valid),
    .ready_i(body_ready),
    .data_o (body)
  );

  logic cipher_valid, cipher_ready, sealed_valid, sealed_ready, tag_valid, tag_ready, tap_valid;
  beat_t cipher_out, sealed, tap;
  cipher_tag_t tag;
  esp_cipher #(
    .Open(1'b0),
    .Rows(Rows),
    .HmacUnits(HmacUnits),
    .Gcm(Gcm),
    .OutDepth(OutDepth),
    .RoundLatency(RoundLatency),
    .SboxKind(SboxKind),
    .GhashStages(GhashStages),
    .GhashLeaf(GhashLeaf)
  ) u_cipher (
    .clk_i,
    .rst_ni,
    .cfg_valid_i(cfg_key_valid_i),
    .cfg_ready_o(cfg_key_ready_o),
    .cfg_row_i,
    .cfg_word_i,
    .cfg_data_i,
    .cmd_valid_i(cmd_valid),
    .cmd_ready_o(cmd_ready),
    .cmd_i(cmd),
    .body_valid_i(body_valid),
    .body_ready_o(body_ready),
    .body_i(body),
    .icv_valid_i(1'b0),
    .icv_ready_o(),
    .icv_i('0),
    .out_valid_o(cipher_valid),
    .out_ready_i(cipher_ready),
    .out_o(cipher_out),
    .tag_valid_o(tag_valid),
    .tag_ready_i(tag_ready),
    .tag_o(tag),
    .tap_valid_o(tap_valid),
    .tap_o(tap)
  );

  stream_slice #(
    .Width($bits(beat_t))
  ) u_sealed_slice (
    .clk_i,
    .rst_ni,
    .valid_i(cipher_valid),
    .ready_o(cipher_ready),
    .data_i (cipher_out),
    .valid_o(sealed_valid),
    .ready_i(sealed_ready),
    .data_o (sealed)
  );

  logic whole_valid, whole_ready, packet_valid, left, no_key, no_key_q;
  logic [15:0] left_bytes;
  beat_t whole, packet;
  user_t whole_user, packet_user;
  esp_assemble u_assemble (
    .clk_i,
    .rst_ni,
    .outer_valid_i(outer_valid),
    .outer_ready_o(outer_ready),
    .outer_i(outer),
    .tap_valid_i(tap_valid),
    .tap_i(tap),
    .body_valid_i(sealed_valid),
    .body_ready_o(sealed_ready),
    .body_i(sealed),
    .tag_valid_i(tag_valid),
    .tag_ready_o(tag_ready),
    .tag_i(tag),
    .valid_o(whole_valid),
    .ready_i(whole_ready),
    .beat_o(whole),
    .user_o(whole_user),
    .dropped_o(no_key)
  );
  stream_slice #(
    .Width($bits(beat_t) + $bits(user_t))
  ) u_packet_slice (
    .clk_i,
    .rst_ni,
    .valid_i(whole_valid),
    .ready_o(whole_ready),
    .data_i ({whole, whole_user}),
    .valid_o(packet_valid),
    .ready_i(merge_ready[0]),
    .data_o ({packet, packet_user})
  );

  frame_merge u_merge (
    .clk_i,
    .rst_ni,
    .valid_i({aside_valid, packet_valid}),
    .ready_o(merge_ready),
    .beat_i({aside, packet}),
    .user_i({aside_user, packet_user}),
    .valid_o,
    .ready_i,
    .beat_o,
    .user_o,
    .left_o(left),
    .left_bytes_o(left_bytes)
  );

  // A drop waits where a frame leaves in the same cycle; one for want of the key goes first, and the next is cycles away.
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) no_key_q <= 1'b0;
    else no_key_q <= no_key || (no_key_q && left);
  end
  assign drop_ready     = !left && !no_key_q;
  assign count_valid_o  = left || no_key_q || drop_valid;
  assign count_reason_o = left ? DropNone : no_key_q ? DropNoSa : drop_reason;
  assign count_bytes_o  = left_bytes;

  // Software hears of an SA that is wanted, and of the SAs' limits.
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) event_valid_o <= 1'b0;
    else event_valid_o <= sa_event_valid || (answer_ready && answer_valid && refused == DropNoSa);
  end
  always_ff @(posedge clk_i) begin
    event_o     <= sa_event_valid ? sa_event : EventNoSa;
    event_row_o <= result.target;
  end

  // A packet's tag comes before its body leaves.
  if ((MaxBytes + 20) / 16 > OutDepth - 64) begin : g_too_shallow
    $error("OutDepth must be 64 beats more than a packet of MaxBytes takes");
  end
endmodule
