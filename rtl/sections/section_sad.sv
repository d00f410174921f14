// A unit of the SAD section: fetches the SA that the policy named, and sends the packet on with it.
module section_sad
  import sections_pkg::*;
(
  input  logic                 clk_i,
  input  logic                 rst_ni,
  input  logic                 s_valid_i,
  output logic                 s_ready_o,
  input  esp_pkg::beat_t       s_beat_i,
  input  policy_head_t         s_user_i,
  output logic                 m_valid_o,
  input  logic                 m_ready_i,
  output esp_pkg::beat_t       m_beat_o,
  output sad_head_t            m_user_o,
  output logic                 request_o,
  output logic [RowWidth-1:0]  row_o,
  output esp_pkg::generation_t generation_o,
  input  logic                 grant_i,
  input  logic                 answer_i,   // SaBeats times
  input  sa_t                  sa_i,
  input  logic [127:0]         words_i
);
  typedef enum logic [1:0] {Ask, Wait, Front, Stream} state_e;
  state_e state_q;
  sa_t sa_q;
  logic words_valid, words_ready;
  logic [127:0] words;
  logic [2:0] left_q;  // of the beats in front
  logic [3:0] unused_count;

  // A whole answer, so that no unit holds up what is for others.
  small_fifo #(
    .Width(128),
    .Depth(8),
    .NeverFull(1'b1)
  ) u_words (
    .clk_i,
    .rst_ni,
    .valid_i(answer_i),
    .ready_o(),
    .data_i (words_i),
    .valid_o(words_valid),
    .ready_i(words_ready),
    .data_o (words),
    .count_o(unused_count)
  );

  assign request_o    = state_q == Ask && s_valid_i;
  assign row_o        = s_user_i.row;
  assign generation_o = s_user_i.generation;
  assign words_ready  = state_q == Front && m_ready_i;
  assign m_valid_o    = state_q == Front ? words_valid : state_q == Stream && s_valid_i;
  assign s_ready_o    = state_q == Stream && m_ready_i;
  assign m_beat_o     = state_q == Front ? '{data: words, keep: '1, last: 1'b0} : s_beat_i;
  assign m_user_o     = '{port: s_user_i.port, bytes: s_user_i.bytes, sa: sa_q};

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      state_q <= Ask;
      left_q  <= 3'(SaBeats - 1);
    end else begin
      unique case (state_q)
        Ask: if (request_o && grant_i) state_q <= Wait;
        Wait: if (answer_i) state_q <= Front;
        Front: if (words_valid && m_ready_i) begin
          left_q <= left_q == '0 ? 3'(SaBeats - 1) : left_q - 1'b1;
          if (left_q == '0) state_q <= Stream;
        end
        Stream: if (m_valid_o && m_ready_i && s_beat_i.last) state_q <= Ask;
      endcase
    end
  end
  always_ff @(posedge clk_i) if (answer_i) sa_q <= sa_i;

  logic unused;
  assign unused = &{s_user_i.sad, unused_count};
endmodule
