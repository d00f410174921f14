// The packet switch in front of a section, and the order of what it sent into the section's units: each is told when the
// next switch may take its packet (turn_o), and says when that did (taken_i).
module section_switch
  import sections_pkg::*;
#(
  parameter  int unsigned Inputs      = 4,
  parameter  int unsigned Outputs     = 4,
  parameter  int unsigned UnitTypes   = Types,
  parameter  int unsigned UserWidth   = 8,
  parameter  int unsigned InDepth     = 128,
  parameter  int unsigned InFrames    = 8,
  parameter  int unsigned OutDepth    = 16,
  parameter  bit          OutRegister = 1'b0,
  localparam int unsigned TypeWidth   = UnitTypes > 1 ? $clog2(UnitTypes) : 1
) (
  input  logic                                        clk_i,
  input  logic                                        rst_ni,
  input  logic           [ Inputs-1:0]                s_valid_i,
  output logic           [ Inputs-1:0]                s_ready_o,
  input  esp_pkg::beat_t [ Inputs-1:0]                s_beat_i,
  input  logic           [ Inputs-1:0][UserWidth-1:0] s_user_i,
  input  logic           [ Inputs-1:0][TypeWidth-1:0] s_type_i,
  input  logic           [ Inputs-1:0]                s_turn_i,
  output logic           [ Inputs-1:0]                s_taken_o,
  output logic           [Outputs-1:0]                m_valid_o,
  input  logic           [Outputs-1:0]                m_ready_i,
  output esp_pkg::beat_t [Outputs-1:0]                m_beat_o,
  output logic           [Outputs-1:0][UserWidth-1:0] m_user_o,
  input  logic           [Outputs-1:0][TypeWidth-1:0] m_type_i,  // must not change
  output logic           [Outputs-1:0]                turn_o,
  input  logic           [Outputs-1:0]                taken_i,
  output logic                                        dropped_o
);
  localparam int unsigned OutWidth = Outputs > 1 ? $clog2(Outputs) : 1;

  word_t [Inputs-1:0] s_word;
  word_t [Outputs-1:0] m_word;
  logic sent_valid, sent_ready;
  logic [OutWidth-1:0] sent_output;

  always_comb for (int unsigned i = 0; i < Inputs; i++) s_word[i] = to_word(s_beat_i[i]);
  always_comb for (int unsigned o = 0; o < Outputs; o++) m_beat_o[o] = to_beat(m_word[o]);

  packet_switch #(
    .Inputs     (Inputs),
    .Outputs    (Outputs),
    .Types      (UnitTypes),
    .UserWidth  (UserWidth),
    .BeatWidth  ($bits(word_t)),
    .InDepth    (InDepth),
    .InFrames   (InFrames),
    .OutDepth   (OutDepth),
    .OutRegister(OutRegister)
  ) u_switch (
    .clk_i,
    .rst_ni,
    .s_valid_i,
    .s_ready_o,
    .s_beat_i      (s_word),
    .s_user_i,
    .s_type_i,
    .s_turn_i,
    .s_registered_o(s_taken_o),
    .m_valid_o,
    .m_ready_i,
    .m_beat_o      (m_word),
    .m_user_o,
    .m_busy_i      ('0),
    .m_type_i,
    .sent_valid_o  (sent_valid),
    .sent_output_o (sent_output),
    .sent_ready_i  (sent_ready),
    .dropped_o
  );
  order_keeper #(
    .Units  (Outputs),
    .Classes(UnitTypes)
  ) u_order (
    .clk_i,
    .rst_ni,
    .class_i     (m_type_i),
    .sent_valid_i(sent_valid),
    .sent_unit_i (sent_output),
    .sent_ready_o(sent_ready),
    .turn_o,
    .taken_i
  );
endmodule
