// Cuts an ESP packet out of its frame: the ciphertext, moved to the first byte of a beat, and the ICV behind it. The
// command for the cipher goes first; what is needed once the packet is open travels beside it. Both carry the packet's
// number.
// A body of n beats takes n + 2 cycles, and one more where it does not begin with a beat.
module esp_decap (
  input  logic                 clk_i,
  input  logic                 rst_ni,
  input  logic                 job_valid_i,
  output logic                 job_ready_o,
  input  esp_pkg::open_job_t   job_i,
  // The frame from the beat on in which the body begins to the one in which the ICV ends.
  input  logic                 valid_i,
  output logic                 ready_o,
  input  esp_pkg::block_t      data_i,
  input  logic                 last_i,
  output logic                 opened_valid_o,
  input  logic                 opened_ready_i,
  output esp_pkg::opened_t     opened_o,
  output logic                 cmd_valid_o,
  input  logic                 cmd_ready_i,
  output esp_pkg::cipher_cmd_t cmd_o,
  output logic                 body_valid_o,
  input  logic                 body_ready_i,
  output esp_pkg::beat_t       body_o,
  output logic                 icv_valid_o,
  input  logic                 icv_ready_i,
  output logic         [127:0] icv_o
);
  import esp_pkg::*;

  logic busy_q, start, done;
  packet_id_t id_q;
  assign start          = job_valid_i && job_ready_o;
  assign job_ready_o    = !busy_q && opened_ready_i && cmd_ready_i;
  assign opened_valid_o = job_valid_i && !busy_q && cmd_ready_i;
  assign cmd_valid_o    = job_valid_i && !busy_q && opened_ready_i;
  assign opened_o       = '{id: id_q, sa: job_i.sa, tos: job_i.tos};
  assign cmd_o = '{
      id: id_q,
      suite: job_i.sa.suite,
      row: job_i.sa.row,
      generation: job_i.sa.generation,
      iv: job_i.iv,
      spi: job_i.spi,
      seq_hi: job_i.sa.seq[63:32],
      seq_lo: job_i.sa.seq[31:0],
      esn: job_i.sa.esn,
      len: job_i.bytes
  };

  // Aligned beats: the held one moved down, and the new one behind it.
  logic [1:0] shift_q, rest_q;  // rest: words of the body's last beat, 0: 4
  logic [11:0] left_q;          // beats of the body that are still to leave
  logic holding_q, flush_q, in_valid, aligned_valid, take, is_icv;
  logic [DataWidth-1:0] hold_q, aligned, previous_q;
  logic [2*DataWidth-1:0] pair;

  assign pair          = {shift_q == '0 ? {DataWidth{1'b0}} : data_i, shift_q == '0 ? data_i : hold_q};
  assign aligned       = DataWidth'(pair >> {shift_q, 5'b0});
  assign in_valid      = busy_q && (valid_i || flush_q);
  // The first beat of a body that begins within it is only held.
  assign aligned_valid = in_valid && (shift_q == '0 || holding_q);
  assign is_icv        = left_q == '0;
  assign take          = is_icv ? !icv_valid_o || icv_ready_i : !body_valid_o || body_ready_i;
  assign ready_o       = busy_q && !flush_q && (take || (shift_q != '0 && !holding_q));
  assign done          = aligned_valid && take && is_icv;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      busy_q       <= 1'b0;
      holding_q    <= 1'b0;
      flush_q      <= 1'b0;
      body_valid_o <= 1'b0;
      icv_valid_o  <= 1'b0;
      id_q         <= '0;
    end else begin
      id_q <= id_q + packet_id_t'(start);
      if (start) busy_q <= 1'b1;
      else if (done) busy_q <= 1'b0;
      if (start || done) begin
        holding_q <= 1'b0;
        flush_q   <= 1'b0;
      end else if (valid_i && ready_o) begin
        holding_q <= 1'b1;
        flush_q   <= last_i;  // what is held is still to come
      end
      if (!body_valid_o || body_ready_i) body_valid_o <= aligned_valid && !is_icv;
      if (!icv_valid_o || icv_ready_i) icv_valid_o <= aligned_valid && is_icv;
    end
  end

  always_ff @(posedge clk_i) begin
    if (start) begin
      shift_q <= job_i.shift;
      rest_q  <= job_i.bytes[3:2];
      left_q  <= 12'((job_i.bytes + 16'd15) >> 4);
    end else if (aligned_valid && take && !is_icv) begin
      left_q <= left_q - 1'b1;
    end
    if (valid_i && ready_o) hold_q <= data_i;
    if (aligned_valid && take) begin
      previous_q <= aligned;
      if (is_icv) begin
        // It begins in the body's last beat if that is short.
        icv_o <= rest_q == '0 ? aligned : DataWidth'({aligned, previous_q} >> {rest_q, 5'b0});
      end else begin
        body_o.data <= aligned;
        body_o.keep <= left_q == 12'd1 && rest_q != '0 ? ~('1 << {rest_q, 2'b0}) : '1;
        body_o.last <= left_q == 12'd1;
      end
    end
  end
endmodule
