// Gateway 2.0: an outbound ESP gateway of five sections (policy, SAD, encapsulation, ciphering, HMAC) with as many units
// each as wanted, joined by packet switches.
//
// Whole IPv4 packets come in at Ports entries and leave at the exit of the same number, those that one SA protects in
// their order. Packets whose SA asks for priority units overtake others at these, but stand in the same lines in front of
// them. Beside its units every section but the first has a way past them, for traffic that needs nothing there
// (BYPASS; no cipher). The SAD has a clock of its own. Sequence numbers have 32 bits.
//
// Configuration, write-only: cfg_addr_i = {table, row, word}, as regs/sections.rdl has them: table 10 is the policy, 11 the SAD.
// Both are emptied after reset; writes wait for that. sections_core has registers in front of it.
module esp_sections
  import sections_pkg::*;
#(
  parameter int unsigned Ports        = 1,
  parameter int unsigned Policies     = 4,
  parameter int unsigned Sads         = 4,
  parameter int unsigned Encaps       = 4,
  parameter int unsigned Aes          = 4,
  parameter int unsigned AesPriority  = 0,  // beside those, for priority traffic
  parameter int unsigned Des          = 0,
  parameter bit          TripleDes    = 1'b0,  // the DES units take three keys
  parameter int unsigned Hmacs        = 4,
  parameter int unsigned HmacPriority = 0,  // and HMAC units, for SAs with that type (sections_pkg::unit_e)
  parameter int unsigned Rows         = 1024,  // of the SAD
  parameter int unsigned InDepth      = 128,  // beats in front of a switch
  parameter int unsigned ExitDepth    = 256,  // in front of the last: longer than a packet
  parameter int unsigned UnitDepth    = 128,  // in front of slow units: a packet, so that it does not hold the switch
  parameter int unsigned InFrames     = 8,  // packets there
  // Beats behind an exit. What finds them taken is dropped, so that no port waits for another one. 0: an exit that stands
  // still stops the sections, which loses nothing where there is one port.
  parameter int unsigned ExitQueue    = Ports > 1 ? 512 : 0
) (
  input  logic                       clk_i,
  input  logic                       rst_ni,
  input  logic                       clk_sad_i,
  input  logic                       rst_sad_ni,
  input  logic                       cfg_valid_i,
  output logic                       cfg_ready_o,
  input  logic [19:0]                cfg_addr_i,
  input  logic [31:0]                cfg_data_i,
  input  logic [Ports-1:0]           s_axis_tvalid_i,
  output logic [Ports-1:0]           s_axis_tready_o,
  input  logic [Ports-1:0][127:0]    s_axis_tdata_i,
  input  logic [Ports-1:0][15:0]     s_axis_tkeep_i,
  input  logic [Ports-1:0]           s_axis_tlast_i,
  output logic [Ports-1:0]           m_axis_tvalid_o,
  input  logic [Ports-1:0]           m_axis_tready_i,
  output logic [Ports-1:0][127:0]    m_axis_tdata_o,
  output logic [Ports-1:0][15:0]     m_axis_tkeep_o,
  output logic [Ports-1:0]           m_axis_tlast_o,
  // Packets dropped: malformed or too long; without a policy, by policy, no sound IPv4; without an SA; for want of a
  // unit of the type that the SA names; at an exit that stands still.
  output logic [31:0]                dropped_frame_o,
  output logic [31:0]                dropped_policy_o,
  output logic [31:0]                dropped_sa_o,
  output logic [31:0]                dropped_unit_o,
  output logic [31:0]                dropped_exit_o
);
  import esp_pkg::*;
  localparam int unsigned TypeWidth = $clog2(Types);
  localparam int unsigned SadWays = Sads + 1;
  localparam int unsigned EncapWays = Encaps + 1;
  localparam int unsigned Ciphers = Aes + AesPriority + Des;
  localparam int unsigned CipherWays = Ciphers + 1;
  localparam int unsigned HmacWays = Hmacs + HmacPriority + 1;
  localparam int unsigned PortTypeWidth = Ports > 1 ? $clog2(Ports) : 1;
  localparam logic [3:0] PolicyTable = 4'd10, SadTable = 4'd11;

  function automatic int unsigned index_width(int unsigned n);
    return n > 1 ? $clog2(n) : 1;
  endfunction

  // Entries: whole frames, with their lengths.
  logic [Ports-1:0] in_valid, in_ready, in_bad;
  beat_t [Ports-1:0] in_beat;
  frame_head_t [Ports-1:0] in_user;
  for (genvar p = 0; p < Ports; p++) begin : gen_entry
    logic entry_valid, take_ready, first, last;
    logic [15:0] entry_bytes, bytes;
    drop_e entry_error;
    frame_fifo #(
      .TagWidth(16)
    ) u_frames (
      .clk_i,
      .rst_ni,
      .valid_i      (s_axis_tvalid_i[p]),
      .ready_o      (s_axis_tready_o[p]),
      .beat_i       ({s_axis_tdata_i[p], s_axis_tkeep_i[p], s_axis_tlast_i[p]}),
      .entry_valid_o(entry_valid),
      .entry_id_o   (),
      .entry_bytes_o(entry_bytes),
      .entry_error_o(entry_error),
      .take_valid_i (entry_valid),
      .take_ready_o (take_ready),
      .take_first_i ('0),
      .take_beats_i (10'((entry_bytes + 16'd15) >> 4)),  // none where it has an error
      .take_tag_i   (entry_bytes),
      .valid_o      (in_valid[p]),
      .ready_i      (in_ready[p]),
      .data_o       (in_beat[p].data),
      .first_o      (first),
      .last_o       (last),
      .tag_o        (bytes)
    );
    assign in_bad[p]       = entry_valid && take_ready && entry_error != DropNone;
    assign in_beat[p].last = last;
    assign in_beat[p].keep = last && bytes[3:0] != '0 ? 16'hffff >> (5'd16 - 5'(bytes[3:0])) : '1;
    assign in_user[p]      = '{port: port_t'(p), bytes: bytes};
    logic unused;
    assign unused = first;
  end

  // The policy section. Its units are all of one type.
  logic [Policies-1:0] policy_valid, policy_ready, policy_out_valid, policy_out_ready, policy_turn, policy_taken;
  beat_t [Policies-1:0] policy_beat, policy_out_beat;
  frame_head_t [Policies-1:0] policy_user;
  policy_head_t [Policies-1:0] policy_out_user;
  logic [Policies-1:0][TypeWidth-1:0] policy_out_type;
  logic [5:0] dropped;
  logic [Ports-1:0] unused_taken;

  section_switch #(
    .Inputs(Ports), .Outputs(Policies), .UnitTypes(1),
    .UserWidth($bits(frame_head_t)), .InDepth(16), .InFrames(InFrames)
  ) u_policy_switch (
    .clk_i,
    .rst_ni,
    .s_valid_i(in_valid),
    .s_ready_o(in_ready),
    .s_beat_i (in_beat),
    .s_user_i (in_user),
    .s_type_i ('0),
    .s_turn_i ('1),
    .s_taken_o(unused_taken),
    .m_valid_o(policy_valid),
    .m_ready_i(policy_ready),
    .m_beat_o (policy_beat),
    .m_user_o (policy_user),
    .m_type_i ('0),
    .turn_o   (policy_turn),
    .taken_i  (policy_taken),
    .dropped_o(dropped[0])
  );

  logic write_q, sad_cfg_ready;
  logic [9:0] write_row_q;
  logic [103:0] write_selector_q;
  policy_t write_entry_q;
  logic [Policies-1:0] table_ready;
  always_comb begin
    cfg_ready_o = 1'b1;
    if (cfg_addr_i[19:16] == SadTable) cfg_ready_o = sad_cfg_ready;
    if (cfg_addr_i[19:16] == PolicyTable) cfg_ready_o = &table_ready;
  end
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) write_q <= 1'b0;
    else write_q <= cfg_valid_i && cfg_ready_o && cfg_addr_i[19:16] == PolicyTable && cfg_addr_i[5:0] == 6'd4;
  end
  always_ff @(posedge clk_i) begin
    if (cfg_valid_i && cfg_addr_i[19:16] == PolicyTable) begin
      write_row_q <= cfg_addr_i[15:6];
      unique case (cfg_addr_i[5:0])
        6'd0: write_selector_q[31:0] <= cfg_data_i;
        6'd1: write_selector_q[63:32] <= cfg_data_i;
        6'd2: write_selector_q[95:64] <= cfg_data_i;
        6'd3: write_selector_q[103:96] <= cfg_data_i[7:0];
        default: write_entry_q <= '{
            valid: cfg_data_i[12], action: action_e'(cfg_data_i[11:10]), generation: cfg_data_i[19:13],
            row: cfg_data_i[9:0], selector: write_selector_q
        };
      endcase
    end
  end

  for (genvar u = 0; u < Policies; u++) begin : gen_policy
    section_policy u_unit (
      .clk_i,
      .rst_ni,
      .s_valid_i     (policy_valid[u]),
      .s_ready_o     (policy_ready[u]),
      .s_beat_i      (policy_beat[u]),
      .s_user_i      (policy_user[u]),
      .m_valid_o     (policy_out_valid[u]),
      .m_ready_i     (policy_out_ready[u]),
      .m_beat_o      (policy_out_beat[u]),
      .m_user_o      (policy_out_user[u]),
      .write_ready_o (table_ready[u]),
      .write_i       (write_q),
      .write_bucket_i(write_row_q[9:2]),
      .write_way_i   (write_row_q[1:0]),
      .write_entry_i (write_entry_q)
    );
    assign policy_out_type[u] = policy_out_user[u].sad;
  end

  // The SAD section.
  logic [SadWays-1:0] sad_valid, sad_ready, sad_out_valid, sad_out_ready, sad_turn, sad_taken;
  beat_t [SadWays-1:0] sad_beat, sad_out_beat;
  policy_head_t [SadWays-1:0] sad_user;
  sad_head_t [SadWays-1:0] sad_out_user;
  logic [SadWays-1:0][TypeWidth-1:0] sad_type, sad_out_type;

  section_switch #(
    .Inputs(Policies), .Outputs(SadWays), .UserWidth($bits(policy_head_t)), .InDepth(InDepth), .InFrames(InFrames)
  ) u_sad_switch (
    .clk_i,
    .rst_ni,
    .s_valid_i(policy_out_valid),
    .s_ready_o(policy_out_ready),
    .s_beat_i (policy_out_beat),
    .s_user_i (policy_out_user),
    .s_type_i (policy_out_type),
    .s_turn_i (policy_turn),
    .s_taken_o(policy_taken),
    .m_valid_o(sad_valid),
    .m_ready_i(sad_ready),
    .m_beat_o (sad_beat),
    .m_user_o (sad_user),
    .m_type_i (sad_type),
    .turn_o   (sad_turn),
    .taken_i  (sad_taken),
    .dropped_o(dropped[1])
  );

  logic [Sads-1:0] request, grant, answer;
  logic [Sads-1:0][esp_pkg::RowWidth-1:0] request_row;
  generation_t [Sads-1:0] request_generation;
  sa_t sa;
  logic [127:0] sa_words;
  sad_access #(
    .Units(Sads),
    .Rows (Rows)
  ) u_sad (
    .clk_i,
    .rst_ni,
    .request_i  (request),
    .row_i      (request_row),
    .generation_i(request_generation),
    .grant_o    (grant),
    .answer_o   (answer),
    .sa_o       (sa),
    .words_o    (sa_words),
    .cfg_valid_i(cfg_valid_i && cfg_addr_i[19:16] == SadTable),
    .cfg_ready_o(sad_cfg_ready),
    .cfg_row_i  (cfg_addr_i[15:6]),
    .cfg_word_i (cfg_addr_i[5:0]),
    .cfg_data_i,
    .clk_sad_i,
    .rst_sad_ni
  );
  for (genvar u = 0; u < Sads; u++) begin : gen_sad
    section_sad u_unit (
      .clk_i,
      .rst_ni,
      .s_valid_i(sad_valid[u]),
      .s_ready_o(sad_ready[u]),
      .s_beat_i (sad_beat[u]),
      .s_user_i (sad_user[u]),
      .m_valid_o(sad_out_valid[u]),
      .m_ready_i(sad_out_ready[u]),
      .m_beat_o (sad_out_beat[u]),
      .m_user_o (sad_out_user[u]),
      .request_o(request[u]),
      .row_o    (request_row[u]),
      .generation_o(request_generation[u]),
      .grant_i  (grant[u]),
      .answer_i (answer[u]),
      .sa_i     (sa),
      .words_i  (sa_words)
    );
    assign sad_type[u]     = UnitMain;
    assign sad_out_type[u] = sad_out_user[u].sa.encap;
  end
  sa_t no_sa;
  always_comb begin
    no_sa = '0;
    no_sa.encap = UnitPass;
  end
  assign sad_type[Sads]      = UnitPass;
  assign sad_out_type[Sads]  = UnitPass;
  assign sad_out_valid[Sads] = sad_valid[Sads];
  assign sad_ready[Sads]     = sad_out_ready[Sads];
  assign sad_out_beat[Sads]  = sad_beat[Sads];
  assign sad_out_user[Sads]  = '{port: sad_user[Sads].port, bytes: sad_user[Sads].bytes, sa: no_sa};

  // The encapsulation section.
  logic [EncapWays-1:0] encap_valid, encap_ready, encap_out_valid, encap_out_ready, encap_turn, encap_taken;
  beat_t [EncapWays-1:0] encap_beat, encap_out_beat;
  sad_head_t [EncapWays-1:0] encap_user;
  encap_head_t [EncapWays-1:0] encap_out_user;
  logic [EncapWays-1:0][TypeWidth-1:0] encap_type, encap_out_type;

  section_switch #(
    .Inputs(SadWays), .Outputs(EncapWays), .UserWidth($bits(sad_head_t)), .InDepth(InDepth), .InFrames(InFrames)
  ) u_encap_switch (
    .clk_i,
    .rst_ni,
    .s_valid_i(sad_out_valid),
    .s_ready_o(sad_out_ready),
    .s_beat_i (sad_out_beat),
    .s_user_i (sad_out_user),
    .s_type_i (sad_out_type),
    .s_turn_i (sad_turn),
    .s_taken_o(sad_taken),
    .m_valid_o(encap_valid),
    .m_ready_i(encap_ready),
    .m_beat_o (encap_beat),
    .m_user_o (encap_user),
    .m_type_i (encap_type),
    .turn_o   (encap_turn),
    .taken_i  (encap_taken),
    .dropped_o(dropped[2])
  );
  for (genvar u = 0; u < EncapWays; u++) begin : gen_encap
    if (u < Encaps) begin : gen_unit
      section_encap u_unit (
        .clk_i,
        .rst_ni,
        .s_valid_i(encap_valid[u]),
        .s_ready_o(encap_ready[u]),
        .s_beat_i (encap_beat[u]),
        .s_user_i (encap_user[u]),
        .m_valid_o(encap_out_valid[u]),
        .m_ready_i(encap_out_ready[u]),
        .m_beat_o (encap_out_beat[u]),
        .m_user_o (encap_out_user[u])
      );
      assign encap_type[u] = UnitMain;
    end else begin : gen_past
      assign encap_out_valid[u] = encap_valid[u];
      assign encap_ready[u]     = encap_out_ready[u];
      assign encap_out_beat[u]  = encap_beat[u];
      assign encap_type[u]      = UnitPass;
      always_comb begin
        encap_out_user[u]        = '0;
        encap_out_user[u].port   = encap_user[u].port;
        encap_out_user[u].cipher = UnitPass;
        encap_out_user[u].auth   = UnitPass;
      end
    end
    assign encap_out_type[u] = encap_out_user[u].cipher;
  end

  // The ciphering section.
  logic [CipherWays-1:0] cipher_valid, cipher_ready, cipher_out_valid, cipher_out_ready, cipher_turn, cipher_taken;
  beat_t [CipherWays-1:0] cipher_beat, cipher_out_beat;
  encap_head_t [CipherWays-1:0] cipher_user;
  cipher_head_t [CipherWays-1:0] cipher_out_user;
  logic [CipherWays-1:0][TypeWidth-1:0] cipher_type, cipher_out_type;

  section_switch #(
    .Inputs(EncapWays), .Outputs(CipherWays), .UserWidth($bits(encap_head_t)), .InDepth(InDepth), .InFrames(InFrames),
    .OutDepth(UnitDepth), .OutRegister(1'b1)
  ) u_cipher_switch (
    .clk_i,
    .rst_ni,
    .s_valid_i(encap_out_valid),
    .s_ready_o(encap_out_ready),
    .s_beat_i (encap_out_beat),
    .s_user_i (encap_out_user),
    .s_type_i (encap_out_type),
    .s_turn_i (encap_turn),
    .s_taken_o(encap_taken),
    .m_valid_o(cipher_valid),
    .m_ready_i(cipher_ready),
    .m_beat_o (cipher_beat),
    .m_user_o (cipher_user),
    .m_type_i (cipher_type),
    .turn_o   (cipher_turn),
    .taken_i  (cipher_taken),
    .dropped_o(dropped[3])
  );
  for (genvar u = 0; u < CipherWays; u++) begin : gen_cipher
    if (u < Aes + AesPriority) begin : gen_aes
      section_aes u_unit (
        .clk_i,
        .rst_ni,
        .s_valid_i(cipher_valid[u]),
        .s_ready_o(cipher_ready[u]),
        .s_beat_i (cipher_beat[u]),
        .s_user_i (cipher_user[u]),
        .m_valid_o(cipher_out_valid[u]),
        .m_ready_i(cipher_out_ready[u]),
        .m_beat_o (cipher_out_beat[u]),
        .m_user_o (cipher_out_user[u])
      );
      assign cipher_type[u] = u < Aes ? UnitMain : UnitPriority;
    end else if (u < Ciphers) begin : gen_des
      section_des #(
        .Triple(TripleDes)
      ) u_unit (
        .clk_i,
        .rst_ni,
        .s_valid_i(cipher_valid[u]),
        .s_ready_o(cipher_ready[u]),
        .s_beat_i (cipher_beat[u]),
        .s_user_i (cipher_user[u]),
        .m_valid_o(cipher_out_valid[u]),
        .m_ready_i(cipher_out_ready[u]),
        .m_beat_o (cipher_out_beat[u]),
        .m_user_o (cipher_out_user[u])
      );
      assign cipher_type[u] = UnitDes;
    end else begin : gen_past
      assign cipher_out_valid[u] = cipher_valid[u];
      assign cipher_ready[u]     = cipher_out_ready[u];
      assign cipher_out_beat[u]  = cipher_beat[u];
      assign cipher_type[u]      = UnitPass;
      assign cipher_out_user[u]  = '{port: cipher_user[u].port, auth: cipher_user[u].auth};
      logic unused;
      assign unused = &{cipher_user[u]};
    end
    assign cipher_out_type[u] = cipher_out_user[u].auth;
  end

  // The HMAC section.
  logic [HmacWays-1:0] hmac_valid, hmac_ready, hmac_out_valid, hmac_out_ready, hmac_turn, hmac_taken;
  beat_t [HmacWays-1:0] hmac_beat, hmac_out_beat;
  word_t [HmacWays-1:0] hmac_out_word;
  cipher_head_t [HmacWays-1:0] hmac_user;
  auth_head_t [HmacWays-1:0] hmac_out_user;
  logic [HmacWays-1:0][TypeWidth-1:0] hmac_type;
  logic [HmacWays-1:0][PortTypeWidth-1:0] hmac_out_type;

  section_switch #(
    .Inputs(CipherWays), .Outputs(HmacWays), .UserWidth($bits(cipher_head_t)), .InDepth(InDepth), .InFrames(InFrames),
    .OutDepth(UnitDepth), .OutRegister(1'b1)
  ) u_hmac_switch (
    .clk_i,
    .rst_ni,
    .s_valid_i(cipher_out_valid),
    .s_ready_o(cipher_out_ready),
    .s_beat_i (cipher_out_beat),
    .s_user_i (cipher_out_user),
    .s_type_i (cipher_out_type),
    .s_turn_i (cipher_turn),
    .s_taken_o(cipher_taken),
    .m_valid_o(hmac_valid),
    .m_ready_i(hmac_ready),
    .m_beat_o (hmac_beat),
    .m_user_o (hmac_user),
    .m_type_i (hmac_type),
    .turn_o   (hmac_turn),
    .taken_i  (hmac_taken),
    .dropped_o(dropped[4])
  );
  for (genvar u = 0; u < HmacWays; u++) begin : gen_hmac
    assign hmac_out_word[u] = to_word(hmac_out_beat[u]);
    if (u < Hmacs + HmacPriority) begin : gen_unit
      section_auth u_unit (
        .clk_i,
        .rst_ni,
        .s_valid_i(hmac_valid[u]),
        .s_ready_o(hmac_ready[u]),
        .s_beat_i (hmac_beat[u]),
        .s_user_i (hmac_user[u]),
        .m_valid_o(hmac_out_valid[u]),
        .m_ready_i(hmac_out_ready[u]),
        .m_beat_o (hmac_out_beat[u]),
        .m_user_o (hmac_out_user[u])
      );
      assign hmac_type[u] = u < Hmacs ? UnitMain : UnitPriority;
    end else begin : gen_past
      assign hmac_out_valid[u] = hmac_valid[u];
      assign hmac_ready[u]     = hmac_out_ready[u];
      assign hmac_out_beat[u]  = hmac_beat[u];
      assign hmac_out_user[u]  = '{port: hmac_user[u].port, lead: 1'b0};
      assign hmac_type[u]      = UnitPass;
    end
    assign hmac_out_type[u] = PortTypeWidth'(hmac_out_user[u].port);
  end

  // Exits: a packet goes to the one of its port once it is there as a whole, so that none waits for slow hashing.
  logic [Ports-1:0] exit_valid, exit_ready;
  beat_t [Ports-1:0] exit_beat;
  word_t [Ports-1:0] exit_word;
  auth_head_t [Ports-1:0] exit_user;
  logic [Ports-1:0][PortTypeWidth-1:0] exit_type;
  logic unused_exit_sent;
  logic [index_width(Ports)-1:0] unused_exit_unit;

  packet_switch #(
    .Inputs(HmacWays), .Outputs(Ports), .Types(Ports), .BeatWidth($bits(word_t)),
    .UserWidth($bits(auth_head_t)), .InDepth(ExitDepth), .InFrames(InFrames), .OutFrames(2), .StoreForward(1'b1)
  ) u_exit_switch (
    .clk_i,
    .rst_ni,
    .s_valid_i     (hmac_out_valid),
    .s_ready_o     (hmac_out_ready),
    .s_beat_i      (hmac_out_word),
    .s_user_i      (hmac_out_user),
    .s_type_i      (hmac_out_type),
    .s_turn_i      (hmac_turn),
    .s_registered_o(hmac_taken),
    .m_valid_o     (exit_valid),
    .m_ready_i     (exit_ready),
    .m_beat_o      (exit_word),
    .m_user_o      (exit_user),
    .m_busy_i      ('0),
    .m_type_i      (exit_type),
    .sent_valid_o  (unused_exit_sent),
    .sent_output_o (unused_exit_unit),
    .sent_ready_i  (1'b1),
    .dropped_o     (dropped[5])
  );
  // 2048 bytes, outer header, SPI and number, IV, padding, trailer and ICV.
  localparam int unsigned BeatsMax = (2048 + 20 + 8 + 16 + 15 + 2 + 12 + 15) / 16;
  logic [Ports-1:0] exit_dropped;
  for (genvar p = 0; p < Ports; p++) begin : gen_exit
    logic valid, ready;
    beat_t beat, left;
    section_exit u_exit (
      .clk_i,
      .rst_ni,
      .s_valid_i(exit_valid[p]),
      .s_ready_o(exit_ready[p]),
      .s_beat_i (exit_beat[p]),
      .s_user_i (exit_user[p]),
      .m_valid_o(valid),
      .m_ready_i(ready),
      .m_beat_o (beat)
    );
    if (ExitQueue > 0) begin : gen_queue
      section_queue #(
        .Depth   (ExitQueue),
        .MaxBeats(BeatsMax)
      ) u_queue (
        .clk_i,
        .rst_ni,
        .s_valid_i(valid),
        .s_beat_i (beat),
        .m_valid_o(m_axis_tvalid_o[p]),
        .m_ready_i(m_axis_tready_i[p]),
        .m_beat_o (left),
        .dropped_o(exit_dropped[p])
      );
      assign ready = 1'b1;
    end else begin : gen_direct
      assign m_axis_tvalid_o[p] = valid;
      assign ready              = m_axis_tready_i[p];
      assign left               = beat;
      assign exit_dropped[p]    = 1'b0;
    end
    assign exit_beat[p] = to_beat(exit_word[p]);
    assign exit_type[p] = PortTypeWidth'(p);
    assign {m_axis_tdata_o[p], m_axis_tkeep_o[p], m_axis_tlast_o[p]} = left;
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      dropped_frame_o  <= '0;
      dropped_policy_o <= '0;
      dropped_sa_o     <= '0;
      dropped_unit_o   <= '0;
      dropped_exit_o   <= '0;
    end else begin
      dropped_frame_o  <= dropped_frame_o + 32'($countones(in_bad));
      dropped_policy_o <= dropped_policy_o + 32'(dropped[1]);
      dropped_sa_o     <= dropped_sa_o + 32'(dropped[2]);
      dropped_unit_o   <= dropped_unit_o + 32'($countones(dropped[5:3]));
      dropped_exit_o   <= dropped_exit_o + 32'($countones(exit_dropped));
    end
  end

  logic unused;
  assign unused = &{dropped[0], unused_taken, unused_exit_sent, unused_exit_unit, sad_user[Sads]};

  if (Ports > 16) begin : g_ports
    $error("there are at most 16 ports");
  end
endmodule
