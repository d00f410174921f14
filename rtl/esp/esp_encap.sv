// Makes the body that is encrypted: the inner packet, padding to a multiple of 4 bytes, pad length and next header
// (RFC 4303 §2.4). The command for the cipher goes first. The job travels beside the body, to esp_assemble. Command and job
// carry the packet's id. A packet of n beats takes n + 1 cycles.
module esp_encap (
  input  logic                 clk_i,
  input  logic                 rst_ni,
  input  logic                 job_valid_i,
  output logic                 job_ready_o,
  input  esp_pkg::seal_job_t   job_i,
  // The inner packet, from a frame_fifo.
  input  logic                 valid_i,
  output logic                 ready_o,
  input  esp_pkg::block_t      data_i,
  input  logic                 last_i,
  // To esp_assemble, then to esp_cipher.
  output logic                 outer_valid_o,
  input  logic                 outer_ready_i,
  output esp_pkg::outer_t      outer_o,
  output logic                 cmd_valid_o,
  input  logic                 cmd_ready_i,
  output esp_pkg::cipher_cmd_t cmd_o,
  output logic                 body_valid_o,
  input  logic                 body_ready_i,
  output esp_pkg::beat_t       body_o
);
  import esp_pkg::*;

  // The job goes both ways at the same time; its body may follow at once.
  logic busy_q, extra_q, start, done, move;
  packet_id_t id_q;
  assign start          = job_valid_i && !busy_q && outer_ready_i && cmd_ready_i;
  assign job_ready_o    = !busy_q && outer_ready_i && cmd_ready_i;
  assign outer_valid_o = job_valid_i && !busy_q && cmd_ready_i;
  assign cmd_valid_o    = job_valid_i && !busy_q && outer_ready_i;
  assign outer_o       = '{id: id_q, job: job_i};
  assign cmd_o = '{
      id: id_q,
      suite: job_i.suite,
      row: job_i.row,
      generation: job_i.generation,
      iv: job_i.iv,
      spi: job_i.spi,
      seq_hi: job_i.seq[63:32],
      seq_lo: job_i.seq[31:0],
      esn: job_i.esn,
      len: body_bytes(job_i.inner_bytes)
  };

  // Trailer of the packet under way, and where in its last beat it begins (16: behind it).
  logic [39:0] trailer_q, trailer_d;
  logic [4:0] rest_q, trailer_end_q;  // bytes of the last beat, and with the trailer
  logic [1:0] padding;
  logic [7:0] next_header;

  assign padding     = 2'(-(job_i.inner_bytes[1:0] + 2'd2));
  assign next_header = job_i.inner_v6 ? 8'd41 : 8'd4;
  always_comb begin
    unique case (padding)
      2'd0: trailer_d = {24'b0, next_header, 8'd0};
      2'd1: trailer_d = {16'b0, next_header, 8'd1, 8'd1};
      2'd2: trailer_d = {8'b0, next_header, 8'd2, 8'd2, 8'd1};
      default: trailer_d = {next_header, 8'd3, 8'd3, 8'd2, 8'd1};
    endcase
  end

  logic [4:0] rest_d;
  assign rest_d = job_i.inner_bytes[3:0] == '0 ? 5'd16 : {1'b0, job_i.inner_bytes[3:0]};

  logic [DataWidth+39:0] whole;
  logic [DataWidth-1:0] kept;
  logic [39:0] over_q;  // of the trailer, for a beat of its own
  assign kept  = data_i & ~('1 << {rest_q, 3'b0});
  assign whole = {40'b0, kept} | ({{DataWidth{1'b0}}, trailer_q} << {rest_q, 3'b0});

  logic fits;
  assign fits    = trailer_end_q <= 5'd16;
  assign move    = !body_valid_o || body_ready_i;
  assign ready_o = busy_q && !extra_q && move;
  assign done    = move && (extra_q || (valid_i && busy_q && last_i && fits));

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      busy_q       <= 1'b0;
      extra_q      <= 1'b0;
      body_valid_o <= 1'b0;
      id_q         <= '0;
    end else begin
      id_q <= id_q + packet_id_t'(start);
      if (start) busy_q <= 1'b1;
      else if (done) busy_q <= 1'b0;
      if (move) begin
        body_valid_o <= busy_q && (valid_i || extra_q);
        extra_q      <= busy_q && !extra_q && valid_i && last_i && !fits;
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (start) begin
      trailer_q     <= trailer_d;
      rest_q        <= rest_d;
      trailer_end_q <= rest_d + 5'd2 + 5'(padding);
    end
    if (move) begin
      over_q <= whole[DataWidth+:40];
      if (extra_q) begin
        body_o.data <= {88'b0, over_q};
        body_o.keep <= ~('1 << 5'(trailer_end_q - 5'd16));
        body_o.last <= 1'b1;
      end else begin
        body_o.data <= last_i ? whole[DataWidth-1:0] : data_i;
        body_o.keep <= last_i && fits ? ~('1 << trailer_end_q) : '1;
        body_o.last <= last_i && fits;
      end
    end
  end
endmodule
