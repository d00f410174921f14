// The core as software sees it: registers, counters, events, and the way to the configuration tables.
//
// docs/fpga-registers.md has the map. The configuration bus only writes: nothing that a table holds can be read.
module esp_regs
  import esp_pkg::*;
  import esp_regmap_pkg::*;
  import axil_pkg::axil_req_t, axil_pkg::axil_rsp_t;
#(
  parameter int unsigned Policies = 64,
  parameter int unsigned Sas = 1024,
  parameter int unsigned HmacUnits = 0,
  parameter bit          Gcm = 1'b1
) (
  input  logic        clk_i,
  input  logic        rst_ni,
  input  axil_req_t   axil_i,
  output axil_rsp_t   axil_o,
  output logic        irq_o,
  // {table, row, word}; stays until it is taken.
  output logic        cfg_valid_o,
  input  logic        cfg_ready_i,
  output logic [19:0] cfg_addr_o,
  output logic [31:0] cfg_data_o,
  output logic        out_enable_o,
  output logic        in_enable_o,
  // What was asked for by a write to a snapshot_request: words of sa_snapshot, the first one lowest.
  input  logic [191:0] out_snapshot_i,
  input  logic [191:0] in_snapshot_i,
  // A packet has ended in the lane, at most one a cycle. The bytes count if it left.
  input  logic        out_count_valid_i,
  input  drop_e       out_count_reason_i,
  input  logic [15:0] out_count_bytes_i,
  input  logic        in_count_valid_i,
  input  drop_e       in_count_reason_i,
  input  logic [15:0] in_count_bytes_i,
  // Something that software must hear of; lost, and known to be lost, if software does not keep up.
  input  logic        event_valid_i,
  input  logic [ 3:0] event_kind_i,  // not 0
  input  logic        event_lane_i,  // 1: inbound
  input  logic [15:0] event_row_i
);
  localparam int unsigned EventWidth = $bits(next_event_in_t);
  localparam int unsigned EventsMax = 16;

  control_out_t control;
  irq_enable_out_t irq_enable;
  irq_status_out_t irq_status;
  logic event_ready, event_waiting, event_read;
  logic [EventWidth-1:0] event_data;
  logic counter_read;
  logic [20:0] counter_address;
  logic [14:0] group_q;
  logic [2:0] word_q;
  logic [31:0] out_counter, in_counter, counter;
  logic refused;

  assign out_enable_o = control.out_enable;
  assign in_enable_o  = control.in_enable;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) irq_o <= 1'b0;
    else begin
      irq_o <= (irq_enable.event_waiting && event_waiting) || (irq_enable.event_lost && irq_status.event_lost);
    end
  end

  always_ff @(posedge clk_i) {group_q, word_q} <= {counter_address[20:6], counter_address[2:0]};

  always_comb begin
    unique case (group_q)
      InCountersAddress[22:8]: counter = in_counter;
      OutSnapshotAddress[22:8]: counter = out_snapshot_i[32*word_q+:32];
      InSnapshotAddress[22:8]: counter = in_snapshot_i[32*word_q+:32];
      default: counter = out_counter;
    endcase
  end

  // The map knows the largest core. A row that this one has not would be another's, and a packet of a suite that it has
  // not would be one of the other kind.
  logic [9:0] row;
  logic no_suite;
  assign row      = cfg_addr_o[15:6];
  assign no_suite = cfg_addr_o[5:0] == 6'd1 && cfg_data_o[0] && !(cfg_data_o[2] ? HmacUnits != 0 : Gcm);
  always_comb begin
    unique case (cfg_addr_o[19:16])
      OutPoliciesTable, InPoliciesTable: refused = 32'(row) >= Policies;
      OutSasTable, InSasTable: refused = 32'(row) >= Sas || no_suite;
      OutKeysTable, InKeysTable: refused = 32'(row) >= Sas;
      OutSnapshotRequestTable, InSnapshotRequestTable: refused = cfg_data_o >= Sas;
      default: refused = 1'b0;
    endcase
  end

  esp_regmap u_regmap (
    .clk_i,
    .rst_ni,
    .axil_i,
    .axil_o,
    .capabilities_i   ('{policies: 16'(Policies), sas: 16'(Sas)}),
    .units_i          ('{gcm: Gcm, hash: 8'(HmacUnits)}),
    .control_o        (control),
    .irq_enable_o     (irq_enable),
    .irq_status_o     (irq_status),
    .irq_status_i     ('{event_waiting: event_waiting, event_lost: event_valid_i && !event_ready}),
    .next_event_i     (event_waiting ? event_data : '0),
    .next_event_read_o(event_read),
    .counter_read_o   (counter_read),
    .counter_address_o(counter_address),
    .counter_data_i   (counter),
    .cfg_valid_o,
    .cfg_ready_i,
    .cfg_addr_o,
    .cfg_data_o,
    .cfg_refused_i    (refused)
  );

  stream_fifo #(
    .Width(EventWidth),
    .Depth(EventsMax)
  ) u_events (
    .clk_i,
    .rst_ni,
    .valid_i(event_valid_i),
    .ready_o(event_ready),
    .data_i ({event_kind_i, event_lane_i, event_row_i}),
    .valid_o(event_waiting),
    .ready_i(event_read),
    .data_o (event_data),
    .count_o()
  );

  esp_counters u_out_counters (
    .clk_i,
    .rst_ni,
    .valid_i  (out_count_valid_i),
    .reason_i (out_count_reason_i),
    .bytes_i  (out_count_bytes_i),
    .read_i   (counter_read && counter_address[20:6] == OutCountersAddress[22:8]),
    .address_i(counter_address[5:0]),
    .data_o   (out_counter)
  );

  esp_counters u_in_counters (
    .clk_i,
    .rst_ni,
    .valid_i  (in_count_valid_i),
    .reason_i (in_count_reason_i),
    .bytes_i  (in_count_bytes_i),
    .read_i   (counter_read && counter_address[20:6] == InCountersAddress[22:8]),
    .address_i(counter_address[5:0]),
    .data_o   (in_counter)
  );
endmodule
