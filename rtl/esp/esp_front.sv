// The front of a lane: it stores each frame whole, parses it, looks it up in the policy, and then drops it, sends it past
// the cipher, or asks for its SA and sends it to the cipher.
//
//   frame_fifo ------------------------------> fate --> body: to the cipher
//   ip_parser -> lookups -> policy -> results -/  |  \-> aside: bypass, to the host
//                       \-> facts ------------/  SAD
//
// The lane says what differs between outbound and inbound, without a register in between: the facts that it keeps of a
// parsed frame (facts_i), and what becomes of the oldest frame (fate_i). Frames are decided one after the other, in the
// order in which they came.
//
//   lookup   a frame that waits for the policy: the policy's key and the facts
//   facts    what the lane must know of a frame once the policy has answered
//   fate     drop, aside or cipher (esp_pkg::fate_t)
//   aside    the frame leaves as it came, past the cipher
//
// A frame's number travels with each of its parts. Simulation stops where parts of two frames would be put together.
// Only that check reads the number.
module esp_front
  import esp_pkg::*;
#(
  parameter bit          Outbound    = 1'b1,
  parameter int unsigned Entries     = 64,    // of the policy
  parameter int unsigned PolicyPiece = 9,     // bits: 9 for block RAM, 4 for LUTs
  parameter int unsigned MaxBytes    = 2048,  // of a frame
  parameter int unsigned Beats       = 512,   // of the frame buffer
  parameter bit          LookupBlock = 1'b0,  // lookups wait in block RAM, a cycle longer
  parameter bit          AsideExtra  = 1'b0,  // a register more behind the frames that go aside
  parameter type         facts_t     = logic [7:0],
  parameter type         answer_t    = logic [7:0],  // of the SAD
  localparam int unsigned BeatWidth  = $clog2(Beats) + 1
) (
  input  logic                 clk_i,
  input  logic                 rst_ni,
  input  logic                 enable_i,  // whether frames are taken
  // Configuration of the policy.
  input  logic                 cfg_valid_i,
  output logic                 cfg_ready_o,
  input  row_t                 cfg_row_i,
  input  logic           [5:0] cfg_word_i,
  input  logic          [31:0] cfg_data_i,
  // Frames.
  input  logic                 valid_i,
  output logic                 ready_o,
  input  beat_t                beat_i,
  output parse_t               parse_o,
  input  facts_t               facts_i,   // of parse_o
  // The oldest frame, from its decision on until it is done with.
  output drop_e                error_o,   // of the frame itself; where there is one, the others mean nothing
  output facts_t               facts_o,
  output policy_result_t       result_o,
  input  fate_t                fate_i,    // of these three
  // The SAD, asked where fate_i.ask is set. A refused frame goes to the host if exception_i is set, else it is dropped.
  output logic                 sa_valid_o,
  input  logic                 sa_ready_i,
  input  logic                 answer_valid_i,
  output logic                 answer_ready_o,
  input  answer_t              answer_i,
  input  drop_e                refused_i,
  input  logic                 exception_i,
  // The frame goes to the cipher: the SAD's answer first, then these of its beats.
  output logic                 job_valid_o,
  input  logic                 job_ready_i,
  output answer_t              answer_o,
  input  logic [BeatWidth-1:0] body_first_i,  // by facts_o, at latest a cycle after these
  input  logic [BeatWidth-1:0] body_beats_i,
  output logic                 body_valid_o,
  input  logic                 body_ready_i,
  output block_t               body_data_o,
  output logic                 body_last_o,
  output logic                 aside_valid_o,
  input  logic                 aside_ready_i,
  output beat_t                aside_beat_o,
  output user_t                aside_user_o,
  output logic                 drop_valid_o,
  input  logic                 drop_ready_i,
  output drop_e                drop_reason_o,
  // Lookups for others, which go first. An answer is valid for a cycle.
  input  logic                 other_valid_i,
  output logic                 other_ready_o,
  input  policy_key_t          other_key_i,
  input  packet_id_t           other_id_i,
  output logic                 other_valid_o,
  output policy_result_t       other_result_o,
  output packet_id_t           other_id_o
);
  localparam int unsigned Frames = 16;

  // What travels with the beats of a frame.
  typedef struct packed {
    logic       aside;
    logic [3:0] last_bytes;  // of its last beat, 0: 16
    user_t      user;
  } tag_t;

  logic entry_valid, take_valid, take_ready, frame_valid, frame_ready, frame_last, fifo_ready;
  logic keep_q, aside_q, to_host_q;  // what becomes of the oldest frame
  logic [BeatWidth-1:0] take_beats;
  packet_id_t entry_id;
  tag_t take_tag, frame_tag;
  assign ready_o = fifo_ready && enable_i;

  frame_fifo #(
    .Beats(Beats),
    .MaxBytes(MaxBytes),
    .Frames(Frames),
    .TagWidth($bits(tag_t)),
    .Slice(1'b1)
  ) u_frames (
    .clk_i,
    .rst_ni,
    .valid_i(valid_i && enable_i),
    .ready_o(fifo_ready),
    .beat_i,
    .entry_valid_o(entry_valid),
    .entry_id_o(entry_id),
    .entry_bytes_o(),
    .entry_error_o(error_o),
    .take_valid_i(take_valid),
    .take_ready_o(take_ready),
    .take_first_i(aside_q ? '0 : body_first_i),
    .take_beats_i(take_beats),
    .take_tag_i(take_tag),
    .valid_o(frame_valid),
    .ready_i(frame_ready),
    .data_o(body_data_o),
    .first_o(),
    .last_o(frame_last),
    .tag_o(frame_tag)
  );

  logic parse_done;
  packet_id_t parse_id_q;
  ip_parser u_parser (
    .clk_i,
    .rst_ni,
    .valid_i(valid_i && ready_o),
    .beat_i,
    .done_o (parse_done),
    .parse_o
  );
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) parse_id_q <= '0;
    else parse_id_q <= parse_id_q + packet_id_t'(parse_done);
  end

  // Each frame is looked up, in order; a malformed one too, to no effect.
  typedef struct packed {
    packet_id_t  id;
    logic [15:0] bytes;
    facts_t      facts;
  } known_t;
  typedef struct packed {
    policy_key_t key;
    known_t      known;
  } lookup_t;

  lookup_t parsed, lookup;
  known_t oldest;
  logic lookup_valid, lookup_ready, oldest_valid, known_ready, result_valid, decided;
  assign parsed.key         = policy_key(parse_o, Outbound, 1'b0);
  assign parsed.known.id    = parse_id_q;
  assign parsed.known.bytes = parse_o.bytes;
  assign parsed.known.facts = facts_i;
  assign facts_o            = oldest.facts;

  // It holds as many as frame_fifo has entries, and two.
  stream_fifo #(
    .Width($bits(lookup_t)),
    .Depth(2 * Frames),
    .Extra(LookupBlock),
    .Block(LookupBlock),
    .NeverFull(1'b1)
  ) u_lookups (
    .clk_i,
    .rst_ni,
    .valid_i(parse_done),
    .ready_o(),
    .data_i (parsed),
    .valid_o(lookup_valid),
    .ready_i(lookup_ready),
    .data_o (lookup),
    .count_o()
  );

  // Whose lookup it is.
  typedef struct packed {
    logic       other;
    packet_id_t id;
  } asker_t;
  asker_t asker;
  logic policy_ready, policy_valid;
  policy_result_t policy_result;
  assign lookup_ready  = policy_ready && known_ready && !other_valid_i;
  assign other_ready_o = policy_ready;

  policy #(
    .Entries(Entries),
    .Piece(PolicyPiece),
    .TagWidth($bits(asker_t))
  ) u_policy (
    .clk_i,
    .rst_ni,
    .cfg_valid_i,
    .cfg_ready_o,
    .cfg_row_i,
    .cfg_word_i,
    .cfg_data_i,
    .valid_i(other_valid_i || (lookup_valid && known_ready)),
    .ready_o(policy_ready),
    .key_i(other_valid_i ? other_key_i : lookup.key),
    .tag_i({other_valid_i, other_valid_i ? other_id_i : lookup.known.id}),
    .valid_o(policy_valid),
    .result_o(policy_result),
    .tag_o(asker)
  );
  assign other_valid_o  = policy_valid && asker.other;
  assign other_result_o = policy_result;
  assign other_id_o     = asker.id;

  stream_fifo #(
    .Width($bits(known_t)),
    .Depth(Frames)
  ) u_known (
    .clk_i,
    .rst_ni,
    .valid_i(lookup_valid && policy_ready && !other_valid_i),
    .ready_o(known_ready),
    .data_i (lookup.known),
    .valid_o(oldest_valid),
    .ready_i(decided),
    .data_o (oldest),
    .count_o()
  );

  // Each result belongs to a word that is in u_known.
  packet_id_t result_id;
  stream_fifo #(
    .Width($bits(packet_id_t) + $bits(policy_result_t)),
    .Depth(2 * Frames),
    .NeverFull(1'b1)
  ) u_results (
    .clk_i,
    .rst_ni,
    .valid_i(policy_valid && !asker.other),
    .ready_o(),
    .data_i ({asker.id, policy_result}),
    .valid_o(result_valid),
    .ready_i(decided),
    .data_o ({result_id, result_o}),
    .count_o()
  );

  // What becomes of the oldest frame.
  typedef enum logic [2:0] {Decide, Ask, Answer, Take, Drop} state_e;
  state_e state_q;
  logic decidable, refused;
  logic [BeatWidth-1:0] frame_beats_q;
  assign decidable      = oldest_valid && result_valid && entry_valid;
  assign sa_valid_o     = state_q == Ask;
  assign answer_ready_o = state_q == Answer;
  assign refused        = refused_i != DropNone;

  // The SAD's answer leaves when the frame does.
  assign take_valid  = state_q == Take && (aside_q || !keep_q || job_ready_i);
  assign job_valid_o = state_q == Take && keep_q && !aside_q && take_ready;
  assign take_beats  = !keep_q ? '0 : aside_q ? frame_beats_q : body_beats_i;
  assign take_tag    = '{
      aside: aside_q,
      last_bytes: oldest.bytes[3:0],
      user: '{
          unused: '0, row: Outbound ? result_o.target : '0, protect: 1'b0, reason: drop_reason_o, to_host: to_host_q
      }
  };
  assign drop_valid_o = state_q == Drop;
  assign decided = (state_q == Take && keep_q && take_valid && take_ready) || (state_q == Drop && drop_ready_i);

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      state_q <= Decide;
    end else begin
      unique case (state_q)
        Decide: if (decidable) state_q <= fate_i.ask ? Ask : Take;
        Ask: if (sa_ready_i) state_q <= Answer;
        Answer: if (answer_valid_i) state_q <= Take;
        Take: if (take_valid && take_ready) state_q <= keep_q ? Decide : Drop;
        Drop: if (drop_ready_i) state_q <= Decide;
      endcase
    end
  end

  always_ff @(posedge clk_i) begin
    if (state_q == Decide) begin
      frame_beats_q <= BeatWidth'((oldest.bytes + 16'd15) >> 4);
      keep_q        <= fate_i.keep;
      aside_q       <= 1'b1;
      to_host_q     <= fate_i.to_host;
      drop_reason_o <= fate_i.reason;
    end
    if (state_q == Answer && answer_valid_i) begin
      answer_o      <= answer_i;
      keep_q        <= !refused || exception_i;
      aside_q       <= refused;
      to_host_q     <= refused;
      drop_reason_o <= refused_i;
    end
  end

  logic checks_q = 1'b0;  // from the first reset on
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      checks_q <= 1'b1;
    end else if (checks_q) begin
      assert (!(state_q == Decide && decidable) || (oldest.id == entry_id && oldest.id == result_id))
      else $error("a frame meets what is known of another one");
    end
  end

  // Beats go to the cipher or aside.
  logic aside_ready;
  beat_t aside_beat;
  assign frame_ready     = frame_tag.aside ? aside_ready : body_ready_i;
  assign body_valid_o    = frame_valid && !frame_tag.aside;
  assign body_last_o     = frame_last;
  assign aside_beat.data = body_data_o;
  assign aside_beat.keep = frame_last && frame_tag.last_bytes != '0 ? ~('1 << frame_tag.last_bytes) : '1;
  assign aside_beat.last = frame_last;

  stream_fifo #(
    .Width($bits(beat_t) + $bits(user_t)),
    .Depth(Beats / 4),
    .Extra(AsideExtra)
  ) u_aside (
    .clk_i,
    .rst_ni,
    .valid_i(frame_valid && frame_tag.aside),
    .ready_o(aside_ready),
    .data_i ({aside_beat, frame_tag.user}),
    .valid_o(aside_valid_o),
    .ready_i(aside_ready_i),
    .data_o ({aside_beat_o, aside_user_o}),
    .count_o()
  );
endmodule
