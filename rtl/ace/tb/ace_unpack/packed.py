"""A reader of the format of docs/ace.md, written from that page, and what ace_unpack says about a file."""

FINE, FORMAT, LENGTH, TOO_LARGE, CODEWORD, LINK, SHORT, LONG = range(8)


class Bits:
    """A file's bits from a byte on, the highest first."""

    def __init__(self, data):
        self.value, self.length = int.from_bytes(data, "big"), 8 * len(data)

    def at(self, first, count):
        return self.value >> (self.length - first - count) & ((1 << count) - 1)


def rounded(bits):
    return (bits + 7) // 8


def read(data, width, index_words, parts_most):
    """The symbols as (symbol, part, last), up to where the file ends or is refused, and how it ends."""
    if len(data) < 12:
        return [], LENGTH
    w, parts, n = data[5], int.from_bytes(data[6:8], "big"), int.from_bytes(data[8:12], "big")
    if data[:5] != b"ACEP\x01" or not 1 <= w <= 28 or parts == 0 or not 1 <= n <= 1 << w:
        return [], FORMAT
    if w > width or parts > parts_most:
        return [], TOO_LARGE
    extents, index_bytes = [], 0
    for at in range(12, 12 + 8 * parts, 8):
        if len(data) < at + 8:
            return [], LENGTH
        codewords, symbols = int.from_bytes(data[at : at + 4], "big"), int.from_bytes(data[at + 4 : at + 8], "big")
        extents.append((codewords, symbols))
        index_bytes += rounded(codewords * w)
        if codewords > 32 * index_words or index_bytes > 4 * index_words:
            return [], TOO_LARGE
    dictionary_at = 12 + 8 * parts
    index_at = dictionary_at + rounded(n * (8 + w))
    if len(data) != index_at + index_bytes:
        return [], LENGTH
    dictionary, out = Bits(data[dictionary_at:index_at]), []
    for part, (codewords, symbols) in enumerate(extents):
        index = Bits(data[index_at : index_at + rounded(codewords * w)])
        index_at += rounded(codewords * w)
        missing = symbols
        for number in range(codewords):
            phrase = index.at(number * w, w)
            if phrase >= n:
                return out, CODEWORD
            while True:
                node = dictionary.at(phrase * (8 + w), 8 + w)
                symbol, link = node >> w, node & (1 << w) - 1
                if link > phrase:
                    return out, LINK
                if missing == 0:
                    return out, LONG
                missing -= 1
                out.append((symbol, part, missing == 0))
                if link == phrase:
                    break
                phrase = link
        if missing:
            return out, SHORT
    return out, FINE
