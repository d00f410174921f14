#ifdef TABLES
// DES (FIPS 46-3) by lookups, for a chain of blocks that has one at a time. The same holds for the tables as for those
// in aes_tables.h, but that two lanes share a copy and may wait for each other.
//
// Halves are rotated to the right by one bit. So S-boxes 1, 3, 5 and 7 take the upper six bits of a byte each, and
// after a rotation by four the other boxes do.

#define DES_COPIES 16

// Adds a box's bits of the subkey to the words of the odd boxes and of the even ones.
#define DES_SUBKEY(number, i0, i1, i2, i3, i4, i5, side, k0, k1, k2, k3, k4, k5, o0, o1, o2, o3)                      \
    subkey[((number) - 1) % 2] |= ((side >> (28 - (k0)) & 1) << 5 | (side >> (28 - (k1)) & 1) << 4 |                  \
                                   (side >> (28 - (k2)) & 1) << 3 | (side >> (28 - (k3)) & 1) << 2 |                  \
                                   (side >> (28 - (k4)) & 1) << 1 | (side >> (28 - (k5)) & 1))                        \
                                  << (26 - ((number) - 1) / 2 * 8);

// Writes the sixteen subkeys of a key, for decryption in reverse order.
INLINE void expand_des(GLOBAL u32 *subkeys, u32 first_c, u32 first_d, u32 decrypts) {
    LOOP for (u32 round = 1; round < 17; round++) {
        u32 turns = des_turns(round);
        u32 c = first_c << turns | first_c >> (28 - turns);
        u32 d = first_d << turns | first_d >> (28 - turns);
        u32 subkey[2] = {0, 0};
        DES_BOXES(DES_SUBKEY)
        u32 at = decrypts ? 16 - round : round - 1;
        subkeys[2 * at] = subkey[0];
        subkeys[2 * at + 1] = subkey[1];
    }
}

// Computes what a box adds to the other half for the lane's number as input.
#define DES_ENTRY(number, i0, i1, i2, i3, i4, i5, side, k0, k1, k2, k3, k4, k5, o0, o1, o2, o3)                       \
    des_s##number(out, lane >> 5, lane >> 4, lane >> 3, lane >> 2, lane >> 1, lane);                                  \
    word = (out[0] & 1) << (32 - (o0)) | (out[1] & 1) << (32 - (o1)) | (out[2] & 1) << (32 - (o2)) |                  \
           (out[3] & 1) << (32 - (o3));                                                                               \
    entry[(number) - 1] = rotate_left(word, 31);

// Computes the lane's part of the tables, which is an entry of each box.
INLINE void load_des_table(LOCAL u32 *table, u32 lane) {
    u32 out[4], entry[8], word;
    DES_BOXES(DES_ENTRY)
    // Lanes write to different banks, as in aes_tables.h.
    LOOP for (u32 n = 0; n < DES_COPIES; n++) {
        LOCAL u32 *copy = table + lane * DES_COPIES + (lane / 2 + n) % DES_COPIES;
        UNROLL for (u32 i = 0; i < 8; i++) copy[64 * i * DES_COPIES] = entry[i];
    }
}

// Looks up the odd boxes, or the even ones, after their subkey is added.
INLINE u32 des_four_boxes(LOCAL const u32 *table, u32 side) {
    u32 word = 0;
    UNROLL for (u32 i = 0; i < 4; i++) {
        // As in aes_tables.h: an entry has 64 bytes, and a box 4096.
        u32 turned = side >> (20 - 8 * i) % 32;
        if (i == 3) turned = side << 4;
        u32 copy = LANE % DES_COPIES * 4;
        word ^= *(LOCAL const u32 *)((LOCAL const char *)table + 8192 * i + (copy | (turned & 0xfc0)));
    }
    return word;
}

INLINE u32 des_boxes(LOCAL const u32 *table, u32 side, u32 odd_key, u32 even_key) {
    return des_four_boxes(table, side ^ odd_key) ^
           des_four_boxes(table + 64 * DES_COPIES, rotate_left(side, 4) ^ even_key);
}

// The initial permutation of a block of two words, which leaves its halves.
INLINE void des_permute(u32 *left, u32 *right) {
    u32 a = swap_bytes(*left), b = swap_bytes(*right);
    exchange(&a, &b, 4, 0x0f0f0f0f);
    exchange(&a, &b, 16, 0x0000ffff);
    exchange(&b, &a, 2, 0x33333333);
    exchange(&b, &a, 8, 0x00ff00ff);
    exchange(&a, &b, 1, 0x55555555);
    *left = rotate_left(a, 31);
    *right = rotate_left(b, 31);
}

// The final permutation, which is the inverse.
INLINE void des_permute_back(u32 *left, u32 *right) {
    u32 a = rotate_left(*left, 1), b = rotate_left(*right, 1);
    exchange(&a, &b, 1, 0x55555555);
    exchange(&b, &a, 8, 0x00ff00ff);
    exchange(&b, &a, 2, 0x33333333);
    exchange(&a, &b, 16, 0x0000ffff);
    exchange(&a, &b, 4, 0x0f0f0f0f);
    *left = swap_bytes(a);
    *right = swap_bytes(b);
}

// Encrypts a block by 48 rounds, or takes their subkeys in reverse order, which decrypts. The permutations between the
// three passes cancel out but for an exchange of the halves.
INLINE void tdes_block(u32 *first, u32 *second, GLOBAL const u32 *subkeys, LOCAL const u32 *table, u32 decrypts) {
    des_permute(first, second);
    u32 left = *first, right = *second;
    LOOP for (u32 pass = 0; pass < 3; pass++) {
        LOOP for (u32 round = 16 * pass; round < 16 * pass + 16; round += 2) {
            u32 key[4];
            load_four(key, subkeys + 2 * (decrypts ? 46 - round : round));
            left ^= des_boxes(table, right, decrypts ? key[2] : key[0], decrypts ? key[3] : key[1]);
            right ^= des_boxes(table, left, decrypts ? key[0] : key[2], decrypts ? key[1] : key[3]);
        }
        u32 old = left;
        left = right;
        right = old;
    }
    *first = left;
    *second = right;
    des_permute_back(first, second);
}
#endif
