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
  localparam int unsigned Ciphers = Aes + AesPriority + Des;
  localparam int unsigned PortTypeWidth = Ports > 1 ? $clog2(Ports) : 1;
  localparam logic [3:0] PolicyTable = 4'd10, SadTable = 4'd11;

  // The sections in their order. A way is a unit of a section, or the last one the way past its units.
  localparam int unsigned Sections = 5;
  localparam int unsigned PolicySection = 0, SadSection = 1, EncapSection = 2, CipherSection = 3, HmacSection = 4;
  localparam int unsigned Ways[Sections] = '{Policies, Sads + 1, Encaps + 1, Ciphers + 1, Hmacs + HmacPriority + 1};
  // What a packet carries into a section on TUSER, and out of the last one, in bits.
  localparam int unsigned HeadWidths[Sections+1] = '{
      $bits(frame_head_t), $bits(policy_head_t), $bits(sad_head_t), $bits(encap_head_t), $bits(cipher_head_t),
      $bits(auth_head_t)
  };

  function automatic int unsigned index_width(int unsigned n);
    return n > 1 ? $clog2(n) : 1;
  endfunction

  // Entries: whole frames, with their lengths.
  logic [Ports-1:0] port_valid, port_ready, port_bad;
  beat_t [Ports-1:0] port_beat;
  frame_head_t [Ports-1:0] port_head;
  assign port_ready = gen_section[PolicySection].s_ready;
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
      .valid_o      (port_valid[p]),
      .ready_i      (port_ready[p]),
      .data_o       (port_beat[p].data),
      .first_o      (first),
      .last_o       (last),
      .tag_o        (bytes)
    );
    assign port_bad[p]       = entry_valid && take_ready && entry_error != DropNone;
    assign port_beat[p].last = last;
    assign port_beat[p].keep = last && bytes[3:0] != '0 ? 16'hffff >> (5'd16 - 5'(bytes[3:0])) : '1;
    assign port_head[p]      = '{port: port_t'(p), bytes: bytes};
    logic unused;
    assign unused = first;
  end

  // Configuration. Every policy unit has the whole table; the SAD is there once.
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
  // The SA of a packet that has none.
  localparam sa_t NoSa = '{encap: UnitPass, cipher: UnitPass, auth: UnitPass, wide: 1'b0};

  // Exits: a packet goes to the one of its port once it is there as a whole, so that none waits for slow hashing.
  localparam int unsigned ExitInputs = Ways[HmacSection];
  logic [ExitInputs-1:0] exit_s_ready, exit_s_taken;
  word_t [ExitInputs-1:0] exit_s_word;
  logic [Ports-1:0] exit_valid, exit_ready;
  beat_t [Ports-1:0] exit_beat;
  word_t [Ports-1:0] exit_word;
  auth_head_t [Ports-1:0] exit_user;
  logic [Ports-1:0][PortTypeWidth-1:0] exit_type;
  logic unused_exit_sent;
  logic [index_width(Ports)-1:0] unused_exit_unit;

  // The sections: a switch each, and its ways. Each takes from the ways of the section in front of it.
  logic [Sections:0] dropped;
  logic [Ports-1:0] unused_taken;
  assign unused_taken = gen_section[PolicySection].s_taken;

  for (genvar s = 0; s < Sections; s++) begin : gen_section
    localparam int unsigned Inputs = s == 0 ? Ports : Ways[s == 0 ? 0 : s-1];
    localparam int unsigned InTypes = s == PolicySection ? 1 : Types;  // policy units are all of one type
    localparam int unsigned InTypeWidth = s == PolicySection ? 1 : TypeWidth;
    localparam int unsigned OutTypeWidth = s == HmacSection ? PortTypeWidth : TypeWidth;
    localparam bit Slow = s == CipherSection || s == HmacSection;
    // From the section in front.
    logic [Inputs-1:0] s_valid, s_ready, s_turn, s_taken;
    beat_t [Inputs-1:0] s_beat;
    logic [Inputs-1:0][HeadWidths[s]-1:0] s_head;
    logic [Inputs-1:0][InTypeWidth-1:0] s_type;
    // Into the ways, and out of them.
    logic [Ways[s]-1:0] in_valid, in_ready, out_valid, out_ready, turn, taken;
    beat_t [Ways[s]-1:0] in_beat, out_beat;
    logic [Ways[s]-1:0][HeadWidths[s]-1:0] in_head;
    logic [Ways[s]-1:0][HeadWidths[s+1]-1:0] out_head;
    logic [Ways[s]-1:0][InTypeWidth-1:0] in_type;     // of each way
    logic [Ways[s]-1:0][OutTypeWidth-1:0] out_type;  // that its packet wants next

    if (s == 0) begin : gen_first
      assign s_valid = port_valid;
      assign s_beat  = port_beat;
      assign s_head  = port_head;
      assign s_type  = '0;
      assign s_turn  = '1;
    end else begin : gen_behind
      assign s_valid = gen_section[s-1].out_valid;
      assign s_beat  = gen_section[s-1].out_beat;
      assign s_head  = gen_section[s-1].out_head;
      assign s_type  = gen_section[s-1].out_type;
      assign s_turn  = gen_section[s-1].turn;
    end
    if (s == HmacSection) begin : gen_last
      assign out_ready = exit_s_ready;
      assign taken     = exit_s_taken;
    end else begin : gen_ahead
      assign out_ready = gen_section[s+1].s_ready;
      assign taken     = gen_section[s+1].s_taken;
    end

    section_switch #(
      .Inputs(Inputs), .Outputs(Ways[s]), .UnitTypes(InTypes), .UserWidth(HeadWidths[s]),
      .InDepth(s == PolicySection ? 16 : InDepth), .InFrames(InFrames),
      .OutDepth(Slow ? UnitDepth : 16), .OutRegister(Slow)
    ) u_switch (
      .clk_i,
      .rst_ni,
      .s_valid_i(s_valid),
      .s_ready_o(s_ready),
      .s_beat_i (s_beat),
      .s_user_i (s_head),
      .s_type_i (s_type),
      .s_turn_i (s_turn),
      .s_taken_o(s_taken),
      .m_valid_o(in_valid),
      .m_ready_i(in_ready),
      .m_beat_o (in_beat),
      .m_user_o (in_head),
      .m_type_i (in_type),
      .turn_o   (turn),
      .taken_i  (taken),
      .dropped_o(dropped[s])
    );

    for (genvar u = 0; u < Ways[s]; u++) begin : gen_way
      // Past the units nothing but the head changes.
      if (s != PolicySection && u == Ways[s] - 1) begin : gen_pass
        assign in_type[u]   = UnitPass;
        assign in_ready[u]  = out_ready[u];
        assign out_valid[u] = in_valid[u];
        assign out_beat[u]  = in_beat[u];
      end
      if (s == PolicySection) begin : gen_policy
        policy_head_t head;
        section_policy u_unit (
          .clk_i,
          .rst_ni,
          .s_valid_i     (in_valid[u]),
          .s_ready_o     (in_ready[u]),
          .s_beat_i      (in_beat[u]),
          .s_user_i      (in_head[u]),
          .m_valid_o     (out_valid[u]),
          .m_ready_i     (out_ready[u]),
          .m_beat_o      (out_beat[u]),
          .m_user_o      (head),
          .write_ready_o (table_ready[u]),
          .write_i       (write_q),
          .write_bucket_i(write_row_q[9:2]),
          .write_way_i   (write_row_q[1:0]),
          .write_entry_i (write_entry_q)
        );
        assign in_type[u]  = '0;
        assign out_head[u] = head;
        assign out_type[u] = head.sad;
      end else if (s == SadSection) begin : gen_sad
        sad_head_t head;
        if (u < Sads) begin : gen_unit
          section_sad u_unit (
            .clk_i,
            .rst_ni,
            .s_valid_i(in_valid[u]),
            .s_ready_o(in_ready[u]),
            .s_beat_i (in_beat[u]),
            .s_user_i (in_head[u]),
            .m_valid_o(out_valid[u]),
            .m_ready_i(out_ready[u]),
            .m_beat_o (out_beat[u]),
            .m_user_o (head),
            .request_o(request[u]),
            .row_o    (request_row[u]),
            .generation_o(request_generation[u]),
            .grant_i  (grant[u]),
            .answer_i (answer[u]),
            .sa_i     (sa),
            .words_i  (sa_words)
          );
          assign in_type[u] = UnitMain;
        end else begin : gen_past
          policy_head_t came;
          logic unused;
          assign came   = in_head[u];
          assign head   = '{port: came.port, bytes: came.bytes, sa: NoSa};
          assign unused = &{came};
        end
        assign out_head[u] = head;
        assign out_type[u] = head.sa.encap;
      end else if (s == EncapSection) begin : gen_encap
        encap_head_t head;
        if (u < Encaps) begin : gen_unit
          section_encap u_unit (
            .clk_i,
            .rst_ni,
            .s_valid_i(in_valid[u]),
            .s_ready_o(in_ready[u]),
            .s_beat_i (in_beat[u]),
            .s_user_i (in_head[u]),
            .m_valid_o(out_valid[u]),
            .m_ready_i(out_ready[u]),
            .m_beat_o (out_beat[u]),
            .m_user_o (head)
          );
          assign in_type[u] = UnitMain;
        end else begin : gen_past
          sad_head_t came;
          logic unused;
          assign came   = in_head[u];
          assign head   = '{port: came.port, cipher: UnitPass, auth: UnitPass, wide: 1'b0};
          assign unused = &{came};
        end
        assign out_head[u] = head;
        assign out_type[u] = head.cipher;
      end else if (s == CipherSection) begin : gen_cipher
        cipher_head_t head;
        if (u < Aes + AesPriority) begin : gen_aes
          section_aes u_unit (
            .clk_i,
            .rst_ni,
            .s_valid_i(in_valid[u]),
            .s_ready_o(in_ready[u]),
            .s_beat_i (in_beat[u]),
            .s_user_i (in_head[u]),
            .m_valid_o(out_valid[u]),
            .m_ready_i(out_ready[u]),
            .m_beat_o (out_beat[u]),
            .m_user_o (head)
          );
          assign in_type[u] = u < Aes ? UnitMain : UnitPriority;
        end else if (u < Ciphers) begin : gen_des
          section_des #(
            .Triple(TripleDes)
          ) u_unit (
            .clk_i,
            .rst_ni,
            .s_valid_i(in_valid[u]),
            .s_ready_o(in_ready[u]),
            .s_beat_i (in_beat[u]),
            .s_user_i (in_head[u]),
            .m_valid_o(out_valid[u]),
            .m_ready_i(out_ready[u]),
            .m_beat_o (out_beat[u]),
            .m_user_o (head)
          );
          assign in_type[u] = UnitDes;
        end else begin : gen_past
          encap_head_t came;
          logic unused;
          assign came   = in_head[u];
          assign head   = '{port: came.port, auth: came.auth};
          assign unused = &{came};
        end
        assign out_head[u] = head;
        assign out_type[u] = head.auth;
      end else begin : gen_hmac
        auth_head_t head;
        if (u < Hmacs + HmacPriority) begin : gen_unit
          section_auth u_unit (
            .clk_i,
            .rst_ni,
            .s_valid_i(in_valid[u]),
            .s_ready_o(in_ready[u]),
            .s_beat_i (in_beat[u]),
            .s_user_i (in_head[u]),
            .m_valid_o(out_valid[u]),
            .m_ready_i(out_ready[u]),
            .m_beat_o (out_beat[u]),
            .m_user_o (head)
          );
          assign in_type[u] = u < Hmacs ? UnitMain : UnitPriority;
        end else begin : gen_past
          cipher_head_t came;
          logic unused;
          assign came   = in_head[u];
          assign head   = '{port: came.port, lead: 1'b0};
          assign unused = &{came};
        end
        assign out_head[u] = head;
        assign out_type[u] = PortTypeWidth'(head.port);
      end
    end
  end

  for (genvar u = 0; u < ExitInputs; u++) begin : gen_exit_word
    assign exit_s_word[u] = to_word(gen_section[HmacSection].out_beat[u]);
  end

  packet_switch #(
    .Inputs(ExitInputs), .Outputs(Ports), .Types(Ports), .BeatWidth($bits(word_t)),
    .UserWidth($bits(auth_head_t)), .InDepth(ExitDepth), .InFrames(InFrames), .OutFrames(2), .StoreForward(1'b1)
  ) u_exit_switch (
    .clk_i,
    .rst_ni,
    .s_valid_i     (gen_section[HmacSection].out_valid),
    .s_ready_o     (exit_s_ready),
    .s_beat_i      (exit_s_word),
    .s_user_i      (gen_section[HmacSection].out_head),
    .s_type_i      (gen_section[HmacSection].out_type),
    .s_turn_i      (gen_section[HmacSection].turn),
    .s_registered_o(exit_s_taken),
    .m_valid_o     (exit_valid),
    .m_ready_i     (exit_ready),
    .m_beat_o      (exit_word),
    .m_user_o      (exit_user),
    .m_busy_i      ('0),
    .m_type_i      (exit_type),
    .sent_valid_o  (unused_exit_sent),
    .sent_output_o (unused_exit_unit),
    .sent_ready_i  (1'b1),
    .dropped_o     (dropped[Sections])
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
      dropped_frame_o  <= dropped_frame_o + 32'($countones(port_bad));
      dropped_policy_o <= dropped_policy_o + 32'(dropped[SadSection]);
      dropped_sa_o     <= dropped_sa_o + 32'(dropped[EncapSection]);
      dropped_unit_o   <= dropped_unit_o + 32'($countones(dropped[Sections:CipherSection]));
      dropped_exit_o   <= dropped_exit_o + 32'($countones(exit_dropped));
    end
  end

  logic unused;
  assign unused = &{dropped[PolicySection], unused_taken, unused_exit_sent, unused_exit_unit};

  if (Ports > 16) begin : g_ports
    $error("there are at most 16 ports");
  end
endmodule
