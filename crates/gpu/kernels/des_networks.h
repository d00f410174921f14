// The S-boxes of DES as networks of gates, out of crates/crypto. tools/gpu-kernels.py makes this file.
//
// Inputs and outputs are in the standard's order, the most significant bit first.

INLINE void des_s1(u32 out[4], u32 v0, u32 v1, u32 v2, u32 v3, u32 v4, u32 v5) {
    u32 v6 = GATE(0x2c, v3, v5, v1, (v5) ^ (v3 & (v5 | v1)));
    u32 v7 = GATE(0x69, v3, v0, v2, v0 ^ (~(v3 ^ v2)));
    u32 v8 = GATE(0x2c, v6, v4, v7, (v4) ^ (v6 & (v4 | v7)));
    u32 v9 = GATE(0x93, v7, v2, v1, (~v2) ^ (v1 & (v7)));
    u32 v10 = GATE(0x94, v4, v9, v7, (v4 ^ v9) ^ (v7 & (v4 | v9)));
    u32 v11 = GATE(0x0b, v10, v2, v0, ~v10 & (~v2 | v0));
    u32 v12 = GATE(0x12, v3, v11, v5, ~v11 & (v3 ^ v5));
    u32 v13 = GATE(0x32, v8, v12, v10, ~v12 & (v8 | v10));
    u32 v14 = GATE(0xe1, v1, v10, v12, v1 ^ (~(v10 | v12)));
    u32 v15 = GATE(0x0d, v14, v11, v0, ~v14 & (v11 | ~v0));
    u32 v16 = GATE(0xa4, v15, v2, v4, (v15 & v4) ^ (v2 & (~(v15 | v4))));
    u32 v17 = GATE(0x0a, v7, v0, v16, v16 & (~v7));
    u32 v18 = GATE(0xe9, v13, v1, v17, (~(v1 ^ v17)) ^ (v13 & (~(v1 & v17))));
    u32 v19 = GATE(0xa9, v4, v7, v16, v16 ^ (~(v4 | v7)));
    u32 v20 = GATE(0x79, v11, v18, v16, (~(v18 ^ v16)) ^ (v11 & (v18 | v16)));
    u32 v21 = GATE(0xd6, v0, v20, v7, (v0 ^ v7) ^ (v20 & (~v0 | v7)));
    u32 v22 = GATE(0x1d, v19, v21, v15, (v21 | ~v15) ^ (v19 & (v21)));
    u32 v23 = GATE(0xdc, v18, v5, v17, v5 | (v18 & ~v17));
    u32 v24 = GATE(0x69, v9, v22, v23, v22 ^ (~(v9 ^ v23)));
    u32 v25 = GATE(0x7a, v10, v6, v24, (v10 | v24) ^ (v6 & (v10 & v24)));
    u32 v26 = GATE(0xe5, v7, v25, v5, (~v5) ^ (v7 & (~v25 | v5)));
    u32 v27 = GATE(0xa3, v26, v16, v19, (~(v26 | v16)) ^ (v19 & (v26)));
    u32 v28 = GATE(0xd1, v13, v15, v27, (~(v15 | v27)) ^ (v13 & (v15)));
    u32 v29 = GATE(0x97, v7, v28, v25, (~(v28 & v25)) ^ (v7 & (v28 | v25)));
    u32 v30 = GATE(0x59, v5, v29, v14, v14 ^ (v5 | ~v29));
    out[0] = v18;
    out[1] = v27;
    out[2] = v30;
    out[3] = v24;
}

INLINE void des_s2(u32 out[4], u32 v0, u32 v1, u32 v2, u32 v3, u32 v4, u32 v5) {
    u32 v6 = GATE(0x69, v4, v5, v1, v1 ^ (~(v4 ^ v5)));
    u32 v7 = GATE(0x87, v1, v6, v0, (~v1) ^ (v0 & (v6)));
    u32 v8 = GATE(0x8a, v0, v5, v4, v4 & (~v0 | v5));
    u32 v9 = GATE(0x72, v6, v8, v1, (v6 | v1) ^ (v8 & (v1)));
    u32 v10 = GATE(0x7b, v9, v3, v6, ~v3 | (v9 ^ v6));
    u32 v11 = GATE(0x69, v1, v10, v0, v0 ^ (~(v1 ^ v10)));
    u32 v12 = GATE(0xae, v7, v4, v11, v11 | (~v7 & v4));
    u32 v13 = GATE(0x96, v3, v6, v2, v2 ^ (v3 ^ v6));
    u32 v14 = GATE(0xac, v2, v5, v1, (v5) ^ (v2 & (v5 ^ v1)));
    u32 v15 = GATE(0xb3, v2, v14, v0, ~v14 | (v2 & v0));
    u32 v16 = GATE(0xa9, v5, v0, v6, v6 ^ (~(v5 | v0)));
    u32 v17 = GATE(0xa3, v7, v15, v16, (~(v7 | v15)) ^ (v16 & (v7)));
    u32 v18 = GATE(0x9c, v12, v13, v17, (v12 ^ v13) ^ (v17 & (v12)));
    u32 v19 = GATE(0xd2, v16, v2, v13, (v16 ^ v13) ^ (v2 & (v13)));
    u32 v20 = GATE(0x2a, v4, v19, v14, (v14) ^ (v19 & (v4 & v14)));
    u32 v21 = GATE(0x69, v20, v4, v11, v11 ^ (~(v20 ^ v4)));
    u32 v22 = GATE(0xf9, v2, v19, v11, v2 | (~(v19 ^ v11)));
    u32 v23 = GATE(0x2e, v7, v18, v9, (v18 | v9) ^ (v7 & (v18)));
    u32 v24 = GATE(0x53, v23, v3, v12, (v23 | ~v3) ^ (v12 & (v23)));
    u32 v25 = GATE(0x96, v17, v4, v23, v17 ^ (v4 ^ v23));
    u32 v26 = GATE(0x90, v24, v25, v3, v24 & (~(v25 ^ v3)));
    u32 v27 = GATE(0x69, v22, v6, v26, v22 ^ (~(v6 ^ v26)));
    u32 v28 = GATE(0x69, v3, v25, v1, v1 ^ (~(v3 ^ v25)));
    out[0] = v18;
    out[1] = v21;
    out[2] = v27;
    out[3] = v28;
}

INLINE void des_s3(u32 out[4], u32 v0, u32 v1, u32 v2, u32 v3, u32 v4, u32 v5) {
    u32 v6 = GATE(0xe1, v4, v5, v3, v4 ^ (~(v5 | v3)));
    u32 v7 = GATE(0x53, v1, v6, v3, (v1 | ~v6) ^ (v3 & (v1)));
    u32 v8 = GATE(0xbe, v2, v3, v4, v4 | (v2 ^ v3));
    u32 v9 = GATE(0x0b, v2, v7, v8, ~v2 & (~v7 | v8));
    u32 v10 = GATE(0x96, v5, v2, v0, v0 ^ (v5 ^ v2));
    u32 v11 = GATE(0x96, v3, v4, v10, v10 ^ (v3 ^ v4));
    u32 v12 = GATE(0x69, v0, v10, v1, v0 ^ (~(v10 ^ v1)));
    u32 v13 = GATE(0x94, v12, v8, v4, (v12 ^ v8) ^ (v4 & (v12 | v8)));
    u32 v14 = GATE(0x35, v12, v6, v7, (v12 | ~v7) ^ (v6 & (v12)));
    u32 v15 = GATE(0x27, v13, v14, v0, (~v13 | v0) ^ (v14 & (v0)));
    u32 v16 = GATE(0xdb, v3, v12, v15, (v3 | ~v12) ^ (v15 & (v3 ^ v12)));
    u32 v17 = GATE(0xf4, v1, v16, v13, v1 | (v16 & ~v13));
    u32 v18 = GATE(0x36, v9, v11, v17, v11 ^ (v9 | v17));
    u32 v19 = GATE(0x4f, v3, v12, v1, ~v3 | (v12 & ~v1));
    u32 v20 = GATE(0x9b, v6, v9, v19, (~v9) ^ (v19 & (v6 | v9)));
    u32 v21 = GATE(0x6e, v20, v5, v1, (v1) ^ (v5 & (v20 | ~v1)));
    u32 v22 = GATE(0x06, v0, v15, v20, ~v0 & (v15 ^ v20));
    u32 v23 = GATE(0x2d, v18, v21, v22, v18 ^ (v21 | ~v22));
    u32 v24 = GATE(0x6b, v18, v9, v22, (~(v18 ^ v9)) ^ (v22 & (v18 | v9)));
    u32 v25 = GATE(0x96, v10, v8, v14, v10 ^ (v8 ^ v14));
    u32 v26 = GATE(0xa3, v20, v24, v25, (~(v20 | v24)) ^ (v25 & (v20)));
    u32 v27 = GATE(0xeb, v10, v15, v7, v7 | (~(v10 ^ v15)));
    u32 v28 = GATE(0xc9, v0, v18, v22, v18 ^ (~(v0 | v22)));
    u32 v29 = GATE(0x6d, v27, v28, v17, (~(v27 ^ v17)) ^ (v28 & (v27 | v17)));
    out[0] = v23;
    out[1] = v26;
    out[2] = v29;
    out[3] = v15;
}

INLINE void des_s4(u32 out[4], u32 v0, u32 v1, u32 v2, u32 v3, u32 v4, u32 v5) {
    u32 v6 = GATE(0x96, v4, v1, v3, v1 ^ (v4 ^ v3));
    u32 v7 = GATE(0x5e, v4, v4, v2, (v4 ^ v2) ^ (v4 & (~(v4 | v2))));
    u32 v8 = GATE(0x3a, v7, v6, v1, (v7 | v1) ^ (v6 & (v7)));
    u32 v9 = GATE(0x9c, v7, v3, v1, (v3) ^ (v7 & (~v1)));
    u32 v10 = GATE(0x69, v0, v8, v9, v0 ^ (~(v8 ^ v9)));
    u32 v11 = GATE(0x61, v6, v7, v10, (~(v6 ^ v10)) ^ (v7 & (v6 | ~v10)));
    u32 v12 = GATE(0x96, v11, v9, v3, v11 ^ (v9 ^ v3));
    u32 v13 = GATE(0x69, v0, v5, v7, v0 ^ (~(v5 ^ v7)));
    u32 v14 = GATE(0xc5, v12, v10, v13, (~(v12 | v13)) ^ (v10 & (v12)));
    u32 v15 = GATE(0x8d, v13, v11, v8, (~(v13 | v8)) ^ (v11 & (v8)));
    u32 v16 = GATE(0xc9, v14, v15, v9, v15 ^ (~(v14 | v9)));
    u32 v17 = GATE(0xa5, v16, v15, v14, v14 ^ (~v16));
    u32 v18 = GATE(0x65, v9, v12, v5, v5 ^ (~v9 | v12));
    u32 v19 = GATE(0x96, v17, v18, v8, v17 ^ (v18 ^ v8));
    u32 v20 = GATE(0x96, v12, v19, v14, v12 ^ (v19 ^ v14));
    out[0] = v17;
    out[1] = v19;
    out[2] = v20;
    out[3] = v16;
}

INLINE void des_s5(u32 out[4], u32 v0, u32 v1, u32 v2, u32 v3, u32 v4, u32 v5) {
    u32 v6 = GATE(0xa1, v0, v2, v5, (~(v0 ^ v5)) ^ (v2 & (~(v0 | v5))));
    u32 v7 = GATE(0xc2, v6, v5, v3, (v6 & v5) ^ (v3 & (~(v6 | v5))));
    u32 v8 = GATE(0x5a, v2, v7, v5, v2 ^ (v5));
    u32 v9 = GATE(0x93, v2, v1, v0, (~v1) ^ (v0 & (v2)));
    u32 v10 = GATE(0x69, v3, v9, v8, v3 ^ (~(v9 ^ v8)));
    u32 v11 = GATE(0x64, v1, v6, v10, (v6) ^ (v10 & (v1 | v6)));
    u32 v12 = GATE(0x65, v8, v1, v11, v11 ^ (~v8 | v1));
    u32 v13 = GATE(0xa5, v9, v11, v7, v7 ^ (~v9));
    u32 v14 = GATE(0x46, v3, v12, v8, (v12) ^ (v8 & (~v3 | v12)));
    u32 v15 = GATE(0x3d, v13, v3, v14, (v13 | ~v14) ^ (v3 & (v13 | v14)));
    u32 v16 = GATE(0x47, v12, v4, v15, (~v12 | v4) ^ (v15 & (v4)));
    u32 v17 = GATE(0xa9, v0, v5, v3, v3 ^ (~(v0 | v5)));
    u32 v18 = GATE(0x41, v5, v16, v17, ~v17 & (~(v5 ^ v16)));
    u32 v19 = GATE(0xb6, v17, v2, v10, (v17 ^ v2) ^ (v10 & (~v17 | v2)));
    u32 v20 = GATE(0xb9, v18, v12, v19, (~v12) ^ (v19 & (~v18 | v12)));
    u32 v21 = GATE(0x59, v3, v12, v4, v4 ^ (v3 | ~v12));
    u32 v22 = GATE(0x64, v18, v7, v2, (v7) ^ (v2 & (v18 | v7)));
    u32 v23 = GATE(0x63, v21, v10, v22, v10 ^ (~v21 | v22));
    u32 v24 = GATE(0x3a, v17, v23, v9, (v17 | v9) ^ (v23 & (v17)));
    u32 v25 = GATE(0x61, v13, v1, v24, (~(v1 | v24)) ^ (v13 & (~(v1 & v24))));
    u32 v26 = GATE(0xe4, v20, v25, v4, (v25) ^ (v4 & (v20 ^ v25)));
    u32 v27 = GATE(0x74, v14, v26, v23, (v14 | v26) ^ (v23 & (v26)));
    u32 v28 = GATE(0x12, v25, v20, v16, ~v20 & (v25 ^ v16));
    u32 v29 = GATE(0xd8, v27, v2, v28, (v27) ^ (v28 & (v27 ^ v2)));
    u32 v30 = GATE(0x69, v16, v29, v1, v1 ^ (~(v16 ^ v29)));
    out[0] = v30;
    out[1] = v23;
    out[2] = v16;
    out[3] = v26;
}

INLINE void des_s6(u32 out[4], u32 v0, u32 v1, u32 v2, u32 v3, u32 v4, u32 v5) {
    u32 v6 = GATE(0x69, v4, v0, v3, v0 ^ (~(v4 ^ v3)));
    u32 v7 = GATE(0xed, v2, v4, v6, v4 | (~(v2 ^ v6)));
    u32 v8 = GATE(0x2f, v5, v7, v1, ~v5 | (~v7 & v1));
    u32 v9 = GATE(0x6b, v3, v1, v6, (~(v3 ^ v1)) ^ (v6 & (v3 | v1)));
    u32 v10 = GATE(0x41, v4, v1, v2, ~v2 & (~(v4 ^ v1)));
    u32 v11 = GATE(0x97, v6, v10, v7, (~(v10 & v7)) ^ (v6 & (v10 | v7)));
    u32 v12 = GATE(0x4d, v3, v11, v0, (~(v3 | v0)) ^ (v11 & (v3 ^ v0)));
    u32 v13 = GATE(0x34, v7, v12, v8, (v7) ^ (v12 & (v7 | ~v8)));
    u32 v14 = GATE(0x3b, v4, v9, v13, ~v9 | (~v4 & v13));
    u32 v15 = GATE(0xa3, v6, v5, v14, (~(v6 | v5)) ^ (v14 & (v6)));
    u32 v16 = GATE(0x5e, v8, v15, v11, (v15 | v11) ^ (v8 & (~v15 | v11)));
    u32 v17 = GATE(0xca, v7, v8, v0, (v0) ^ (v7 & (v8 ^ v0)));
    u32 v18 = GATE(0x2f, v14, v17, v6, ~v14 | (~v17 & v6));
    u32 v19 = GATE(0x37, v13, v17, v5, ~v17 | (~(v13 | v5)));
    u32 v20 = GATE(0xa9, v15, v18, v2, v2 ^ (~(v15 | v18)));
    u32 v21 = GATE(0x0e, v1, v20, v0, ~v1 & (v20 | v0));
    u32 v22 = GATE(0x96, v19, v21, v6, v19 ^ (v21 ^ v6));
    u32 v23 = GATE(0x7f, v4, v11, v22, ~v11 | (~(v4 & v22)));
    u32 v24 = GATE(0x69, v23, v5, v1, v1 ^ (~(v23 ^ v5)));
    u32 v25 = GATE(0x96, v18, v2, v24, v18 ^ (v2 ^ v24));
    u32 v26 = GATE(0xd2, v20, v4, v22, (v20 ^ v22) ^ (v4 & (v22)));
    u32 v27 = GATE(0xb7, v14, v16, v4, (~(v14 & v16)) ^ (v4 & (v16)));
    u32 v28 = GATE(0x4b, v26, v27, v5, v26 ^ (~v27 | v5));
    out[0] = v16;
    out[1] = v25;
    out[2] = v28;
    out[3] = v22;
}

INLINE void des_s7(u32 out[4], u32 v0, u32 v1, u32 v2, u32 v3, u32 v4, u32 v5) {
    u32 v6 = GATE(0x3d, v1, v0, v3, (v0 | ~v3) ^ (v1 & (v0 | v3)));
    u32 v7 = GATE(0x96, v0, v2, v5, v0 ^ (v2 ^ v5));
    u32 v8 = GATE(0x9d, v7, v1, v2, (~v2) ^ (v1 & (v7 | v2)));
    u32 v9 = GATE(0x63, v0, v3, v2, v3 ^ (~v0 | v2));
    u32 v10 = GATE(0xb5, v7, v0, v1, (~v1) ^ (v7 & (v0 | v1)));
    u32 v11 = GATE(0x37, v9, v10, v6, ~v10 | (~(v9 | v6)));
    u32 v12 = GATE(0x80, v8, v11, v3, v11 & (v8 & v3));
    u32 v13 = GATE(0x2d, v6, v12, v5, v6 ^ (v12 | ~v5));
    u32 v14 = GATE(0xe2, v5, v0, v8, (v8) ^ (v0 & (v5 ^ v8)));
    u32 v15 = GATE(0xe2, v2, v5, v14, (v14) ^ (v5 & (v2 ^ v14)));
    u32 v16 = GATE(0x9d, v11, v15, v9, (~v9) ^ (v15 & (v11 | v9)));
    u32 v17 = GATE(0x9a, v13, v16, v7, (v13 ^ v7) ^ (v16 & (v13)));
    u32 v18 = GATE(0x95, v3, v14, v11, (~v11) ^ (v14 & (v3)));
    u32 v19 = GATE(0xb0, v4, v17, v18, v4 & (~v17 | v18));
    u32 v20 = GATE(0x96, v19, v6, v16, v16 ^ (v19 ^ v6));
    u32 v21 = GATE(0xfd, v14, v9, v19, v14 | (v9 | ~v19));
    u32 v22 = GATE(0x94, v21, v4, v11, (v21 ^ v4) ^ (v11 & (v21 | v4)));
    u32 v23 = GATE(0x6f, v6, v2, v20, ~v6 | (v2 ^ v20));
    u32 v24 = GATE(0x7d, v23, v20, v1, ~v1 | (v23 ^ v20));
    u32 v25 = GATE(0x69, v3, v7, v24, v24 ^ (~(v3 ^ v7)));
    u32 v26 = GATE(0x59, v13, v4, v15, v15 ^ (v13 | ~v4));
    u32 v27 = GATE(0xdc, v16, v26, v14, v26 | (v16 & ~v14));
    u32 v28 = GATE(0x96, v25, v2, v27, v2 ^ (v25 ^ v27));
    u32 v29 = GATE(0x56, v4, v12, v25, v25 ^ (v4 | v12));
    out[0] = v20;
    out[1] = v22;
    out[2] = v28;
    out[3] = v29;
}

INLINE void des_s8(u32 out[4], u32 v0, u32 v1, u32 v2, u32 v3, u32 v4, u32 v5) {
    u32 v6 = GATE(0xc8, v5, v0, v1, v0 & (v5 | v1));
    u32 v7 = GATE(0x5e, v4, v6, v3, (v4 ^ v3) ^ (v6 & (~(v4 | v3))));
    u32 v8 = GATE(0x69, v7, v2, v0, v0 ^ (~(v7 ^ v2)));
    u32 v9 = GATE(0x1e, v3, v8, v4, v3 ^ (v8 | v4));
    u32 v10 = GATE(0xab, v0, v4, v9, v9 | (~(v0 | v4)));
    u32 v11 = GATE(0x63, v10, v8, v1, v8 ^ (~v10 | v1));
    u32 v12 = GATE(0xa9, v0, v11, v9, v9 ^ (~(v0 | v11)));
    u32 v13 = GATE(0x74, v12, v1, v9, (v12 | v1) ^ (v9 & (v1)));
    u32 v14 = GATE(0x84, v11, v1, v0, v1 & (~(v11 ^ v0)));
    u32 v15 = GATE(0x6a, v6, v5, v13, (v13) ^ (v5 & (v6)));
    u32 v16 = GATE(0x1c, v14, v15, v5, (v15) ^ (v14 & (v15 | ~v5)));
    u32 v17 = GATE(0x96, v4, v16, v11, v11 ^ (v4 ^ v16));
    u32 v18 = GATE(0xe1, v1, v13, v17, v1 ^ (~(v13 | v17)));
    u32 v19 = GATE(0x60, v0, v11, v18, v0 & (v11 ^ v18));
    u32 v20 = GATE(0x36, v19, v13, v5, v13 ^ (v19 | v5));
    u32 v21 = GATE(0x6c, v20, v18, v0, (v18) ^ (v0 & (v20)));
    u32 v22 = GATE(0x56, v21, v5, v11, v11 ^ (v21 | v5));
    u32 v23 = GATE(0xbd, v4, v22, v13, (v22 | ~v13) ^ (v4 & (v22 ^ v13)));
    u32 v24 = GATE(0xb4, v18, v17, v23, (v18 ^ v17) ^ (v23 & (v17)));
    u32 v25 = GATE(0x6a, v5, v24, v11, (v11) ^ (v24 & (v5)));
    out[0] = v22;
    out[1] = v20;
    out[2] = v17;
    out[3] = v25;
}
