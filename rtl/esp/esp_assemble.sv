// Puts packets together: outer IP and UDP header, ESP header, IV, ciphertext, ICV. All of these are multiples of 4 bytes.
//
// A packet begins when its ICV is there, so that nothing of one that cannot be finished leaves, nor of one whose ICV is not
// ok: its body is taken and dropped. Its headers are made while the
// one before it leaves. It takes its header's, body's and ICV's beats, each rounded up, and one cycle more if the end is
// ragged: a cycle behind the header and one before the end may be without a beat.
module esp_assemble #(
  parameter int unsigned Packets = 32  // between esp_encap and here, a power of two
) (
  input  logic                 clk_i,
  input  logic                 rst_ni,
  input  logic                 outer_valid_i,
  output logic                 outer_ready_o,
  input  esp_pkg::outer_t      outer_i,
  // The ciphertext as it goes into the cipher's FIFO: UDP over IPv6 needs a sum of it in front (RFC 8200, 8.1).
  input  logic                 tap_valid_i,
  input  esp_pkg::beat_t       tap_i,
  input  logic                 body_valid_i,
  output logic                 body_ready_o,
  input  esp_pkg::beat_t       body_i,
  input  logic                 tag_valid_i,
  output logic                 tag_ready_o,
  input  esp_pkg::cipher_tag_t tag_i,
  output logic                 valid_o,
  input  logic                 ready_i,
  output esp_pkg::beat_t       beat_o,
  output esp_pkg::user_t       user_o,
  output logic                 dropped_o  // for a cycle
);
  import esp_pkg::*;

  // One's complement sums do not care for the order of bytes but in the result.
  function automatic logic [3:0][16:0] add_pairs(logic [7:0][15:0] words);
    for (int unsigned n = 0; n < 4; n++) add_pairs[n] = 17'(words[2*n]) + 17'(words[2*n+1]);
  endfunction

  function automatic logic [19:0] add_four(logic [3:0][16:0] pairs);
    return (20'(pairs[0]) + 20'(pairs[1])) + (20'(pairs[2]) + 20'(pairs[3]));
  endfunction

  function automatic logic [15:0] fold(logic [31:0] sum);
    logic [16:0] once;
    once = 17'(sum[31:16]) + 17'(sum[15:0]);
    return once[15:0] + 16'(once[16]);
  endfunction

  // The sum of each body, little-endian: of pairs, of a beat, of all beats.
  logic [2:0] tap_valid_q, tap_last_q;
  logic sum_first_q;
  logic [7:0][15:0] tap_words;
  logic [3:0][16:0] tap_pairs_q;
  logic [19:0] tap_sum_q;
  logic [31:0] body_sum_q;
  logic [15:0] body_sum;
  logic sum_valid, header_done;
  logic [DataWidth-1:0] tap_mask;

  for (genvar b = 0; b < KeepWidth; b++) begin : g_mask
    assign tap_mask[8*b+:8] = {8{tap_i.keep[b]}};
  end
  assign tap_words = tap_i.data & tap_mask;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      tap_valid_q <= '0;
      sum_first_q <= 1'b1;
    end else begin
      tap_valid_q <= {tap_valid_q[1:0], tap_valid_i};
      if (tap_valid_q[1]) sum_first_q <= tap_last_q[1];
    end
  end
  always_ff @(posedge clk_i) begin
    tap_last_q  <= {tap_last_q[1:0], tap_i.last};
    tap_pairs_q <= add_pairs(tap_words);
    tap_sum_q   <= add_four(tap_pairs_q);
    if (tap_valid_q[1]) body_sum_q <= (sum_first_q ? '0 : body_sum_q) + 32'(tap_sum_q);
  end

  stream_fifo #(
    .Width(16),
    .Depth(Packets),
    .NeverFull(1'b1)
  ) u_sums (
    .clk_i,
    .rst_ni,
    .valid_i(tap_valid_q[2] && tap_last_q[2]),
    .ready_o(),            // as many as packets at most
    .data_i (fold(body_sum_q)),
    .valid_o(sum_valid),
    .ready_i(header_done),
    .data_o (body_sum),
    .count_o()
  );

  logic outer_valid;
  outer_t outer;
  seal_job_t job;
  assign job = outer.job;
  stream_fifo #(
    .Width($bits(outer_t)),
    .Depth(Packets / 2)
  ) u_outer (
    .clk_i,
    .rst_ni,
    .valid_i(outer_valid_i),
    .ready_o(outer_ready_o),
    .data_i (outer_i),
    .valid_o(outer_valid),
    .ready_i(header_done),
    .data_o (outer),
    .count_o()
  );

  // The header of the next packet, in steps: the sums of IPv4's header and of all that UDP over IPv6 sums but the body and
  // the ICV, eight words a cycle; then, with the ICV, these. What is added takes four cycles to `all_q`.
  typedef enum logic [2:0] {Lengths, Sums, Icv, IcvSums, Ready} step_e;
  step_e step_q;
  logic [3:0] count_q;  // cycles in this step
  logic [15:0] esp_bytes_q, udp_bytes_q, ip_bytes_q, ip_sum_q, udp_sum_q;
  logic start;  // the packet that is ready goes

  // What the queues show is this packet's until the cycle behind.
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) header_done <= 1'b0;
    else header_done <= start;
  end

  logic icv_there;
  // The FIFO shows the ICV and the sum of this packet: all before it have left them.
  assign icv_there = tag_valid_i && sum_valid;

  logic checks_q = 1'b0;  // from the first reset on
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      checks_q <= 1'b1;
    end else if (checks_q) begin
      assert (!(step_q == Icv && icv_there) || tag_i.id == outer.id)
      else $error("a packet meets the ICV of another one");
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      step_q  <= Lengths;
      count_q <= '0;
    end else begin
      count_q <= count_q + 1'b1;
      unique case (step_q)
        Lengths: begin
          count_q <= '0;
          if (outer_valid && !header_done) step_q <= Sums;
        end
        Sums: if (count_q == 4'd8) step_q <= Icv;
        Icv: begin
          count_q <= '0;
          if (icv_there) step_q <= job.udp && job.v6 ? IcvSums : Ready;
        end
        IcvSums: if (count_q == 4'd5) step_q <= Ready;
        Ready: if (start) step_q <= Lengths;
      endcase
    end
  end

  logic [7:0] protocol;
  assign protocol = job.udp ? 8'd17 : 8'd50;

  // What is added: in Sums in this order, then the ICV and the sum of the body.
  logic [7:0][15:0] operand, operand_q;
  logic [3:0][16:0] pairs_q;
  logic [19:0] sum_q;
  logic [23:0] all_q;
  logic [16:0] once_q;
  always_comb begin
    unique case (count_q[2:0])
      3'd0: operand = {
          8'h45, job.tos, job.identification, 1'b0, job.dont_fragment, 14'b0, job.ttl, protocol,
          job.local_address[31:0], job.remote_address[31:0]
        };
      3'd1: operand = job.local_address;
      3'd2: operand = job.remote_address;
      3'd3: operand = {job.spi, job.seq[31:0], job.iv};
      3'd4: operand = {48'b0, job.local_port, job.remote_port, 16'd17, udp_bytes_q, udp_bytes_q};
      default: operand = '0;
    endcase
    if (step_q == Icv) operand = to_block(tag_i.icv);
    if (step_q == IcvSums) operand = {112'b0, body_sum[7:0], body_sum[15:8]};
  end

  always_ff @(posedge clk_i) begin
    if (step_q == Lengths) esp_bytes_q <= body_bytes(job.inner_bytes) + 16'd32;
    if (step_q == Sums && count_q == 4'd0) begin
      udp_bytes_q <= esp_bytes_q + 16'd8;
      ip_bytes_q  <= esp_bytes_q + (job.udp ? 16'd8 : 16'd0) + (job.v6 ? 16'd0 : 16'd20);
    end

    operand_q <= operand;
    pairs_q   <= add_pairs(operand_q);
    sum_q     <= add_four(pairs_q);
    once_q    <= 17'(all_q[15:0]) + 17'(all_q[23:16]);
    if (step_q == Sums) begin
      // At first IPv4's header and its length, then the rest from the beginning.
      if (count_q == 4'd3) all_q <= 24'(sum_q) + 24'(ip_bytes_q);
      if (count_q == 4'd4) all_q <= 24'(sum_q);
      if (count_q > 4'd4 && count_q < 4'd8) all_q <= all_q + 24'(sum_q);
      if (count_q == 4'd5) ip_sum_q <= ~(once_q[15:0] + 16'(once_q[16]));
    end
    if (step_q == IcvSums) begin
      if (count_q == 4'd2 || count_q == 4'd3) all_q <= all_q + 24'(sum_q);
      if (count_q == 4'd5) udp_sum_q <= (once_q[15:0] + 16'(once_q[16])) == '1 ? '1 : ~(once_q[15:0] + 16'(once_q[16]));
    end
  end

  // The header as words in network byte order, the first in [15].
  typedef logic [15:0][31:0] words_t;
  words_t header;
  logic [4:0] header_words;
  logic [3:0][31:0] esp;
  logic [1:0][31:0] udp;
  assign esp = {job.spi, job.seq[31:0], job.iv};
  assign udp = {job.local_port, job.remote_port, udp_bytes_q, job.v6 ? udp_sum_q : 16'd0};
  always_comb begin
    header       = '0;
    header_words = job.v6 ? 5'd14 : 5'd9;
    if (job.v6) begin
      header[15] = {4'd6, job.tos, job.flow_label};
      header[14] = {ip_bytes_q, protocol, job.ttl};
      header[13-:4] = job.local_address;
      header[9-:4] = job.remote_address;
      if (job.udp) header[5:0] = {udp, esp};
      else header[5-:4] = esp;
    end else begin
      header[15] = {8'h45, job.tos, ip_bytes_q};
      header[14] = {job.identification, 1'b0, job.dont_fragment, 14'b0};
      header[13] = {job.ttl, protocol, ip_sum_q};
      header[12] = job.local_address[31:0];
      header[11] = job.remote_address[31:0];
      if (job.udp) header[10-:6] = {udp, esp};
      else header[10-:4] = esp;
    end
    if (job.udp) header_words += 5'd2;
  end

  // The rotator: words that come, one to four a cycle, behind up to three that are carried.
  typedef enum logic [2:0] {Wait, Header, Body, Tag, Flush, Void} part_e;
  part_e part_q;
  words_t header_q;
  logic [4:0] header_left_q;  // behind the words that go now
  logic [2:0] header_now_q;
  logic [95:0] carry_q;
  logic [1:0] carried_q;
  logic [127:0] in_data, tag_q;
  logic [2:0] in_words, sum_words_there;
  logic in_valid, in_final, move, out_valid;
  logic [223:0] joined;
  row_t row_q;

  part_e first_part;
  assign first_part = tag_i.ok ? Header : Void;
  assign dropped_o  = part_q == Void && body_valid_i && body_i.last;
  assign move       = !valid_o || ready_i;
  assign start      = step_q == Ready && (part_q == Wait || (part_q == Flush && move));

  always_comb begin
    in_valid = 1'b0;
    in_final = 1'b0;
    in_words = 3'd4;
    in_data  = body_i.data;
    unique case (part_q)
      Header: begin
        in_valid = 1'b1;
        in_data  = from_block(header_q[15-:4]);
        in_words = header_now_q;
      end
      Body: begin
        in_valid = body_valid_i;
        if (body_i.last) begin
          in_words = body_i.keep[12] ? 3'd4 : body_i.keep[8] ? 3'd3 : body_i.keep[4] ? 3'd2 : 3'd1;
        end
      end
      Tag: begin
        in_valid = 1'b1;
        in_data  = tag_q;
        in_final = 1'b1;
      end
      Wait, Flush, Void: ;
    endcase
    sum_words_there = 3'(carried_q) + in_words;  // 7 at most
    joined          = {128'b0, carry_q} | ({96'b0, in_data} << {carried_q, 5'b0});
    out_valid       = part_q == Flush || (in_valid && sum_words_there[2]);
  end

  assign body_ready_o = (part_q == Body && move) || part_q == Void;
  // The ICV was copied when the packet started.
  assign tag_ready_o  = header_done;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      part_q  <= Wait;
      valid_o <= 1'b0;
    end else begin
      if (move) valid_o <= out_valid;
      unique case (part_q)
        Wait: if (start) part_q <= first_part;
        Header: if (move && header_left_q == '0) part_q <= Body;
        Body: if (move && body_valid_i && body_i.last) part_q <= Tag;
        Tag: if (move) part_q <= sum_words_there == 3'd4 ? Wait : Flush;
        Void: if (dropped_o) part_q <= Wait;
        Flush: if (move) part_q <= start ? first_part : Wait;
      endcase
    end
  end

  always_ff @(posedge clk_i) begin
    if (start) row_q <= job.row;
    // What the next packet begins with, whether it starts now or later.
    if (part_q == Wait || part_q == Flush) begin
      header_q      <= header;
      header_left_q <= header_words - 5'd4;
      header_now_q  <= 3'd4;
      tag_q         <= tag_i.icv;
    end else if (part_q == Header && move) begin
      header_q      <= {header_q[11:0], 128'b0};
      header_left_q <= header_left_q > 5'd4 ? header_left_q - 5'd4 : '0;
      header_now_q  <= header_left_q > 5'd4 ? 3'd4 : header_left_q[2:0];
    end
    if (part_q == Wait || (part_q == Flush && move)) begin
      carried_q <= '0;
      carry_q   <= '0;
    end else if (move && in_valid) begin
      // Words behind those that count are taken away before they are carried.
      carried_q <= sum_words_there[1:0];
      if (sum_words_there[2]) begin
        carry_q <= joined[223:128] & ~('1 << {sum_words_there[1:0], 5'b0});
      end else begin
        carry_q <= joined[95:0] & ~('1 << {sum_words_there[1:0], 5'b0});
      end
    end
    if (move) begin
      beat_o.data <= part_q == Flush ? {32'b0, carry_q} : joined[127:0];
      beat_o.keep <= part_q == Flush ? ~('1 << {carried_q, 2'b0}) : '1;
      beat_o.last <= part_q == Flush || (in_final && sum_words_there == 3'd4);
      user_o      <= '{unused: '0, row: row_q, protect: 1'b1, reason: DropNone, to_host: 1'b0};
    end
  end
endmodule
