#include "data/source.h"

#include <errno.h>
#include <fcntl.h>
#include <libdeflate.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#define ZLIB_CONST /* next_in is a pointer to const */
#include <zlib.h>

#include "base/mem.h"

#define WINDOW ((size_t)256 << 10) /* bytes read from the file at a time */

/* A packed file up to this size is unpacked in one go, several times as fast as in pieces. */
#define AT_ONCE ((uint64_t)256 << 20)
#define EXPANSION 1032u /* deflate packs no tighter: a file that claims more is not believed */

struct kml_source {
    char *name;
    uint8_t *whole;    /* unpacked in one go; NULL: read in pieces */
    int file;          /* -1: out of memory */
    uint8_t *room;     /* [WINDOW] for a file */
    const uint8_t *at; /* what was read and not used yet */
    size_t left;
    bool file_ended;
    bool packed;
    bool member_open; /* inside a gzip member: the stream may not end here */
    z_stream inflater;
};

/* Gets more raw bytes when none are left. Afterwards left == 0 means the end. */
static int fill(struct kml_source *s, struct kml_err *err)
{
    while (s->left == 0 && s->file >= 0 && !s->file_ended) {
        ssize_t got = read(s->file, s->room, WINDOW);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return kml_fail_errno(err, errno, "cannot read %s", s->name);
        }
        s->at = s->room;
        s->left = (size_t)got;
        s->file_ended = got == 0;
    }
    return 0;
}

static bool has_gzip_magic(const struct kml_source *s)
{
    return s->left >= 2 && s->at[0] == 0x1f && s->at[1] == 0x8b;
}

static void start_unpacking(struct kml_source *s)
{
    if (has_gzip_magic(s)) {
        s->packed = true;
        s->member_open = true;
        KML_BUG_ON(inflateInit2(&s->inflater, 15 + 16) !=
                   Z_OK); /* 32 KiB window, gzip wrapper with its checks */
    }
}

struct kml_source *kml_source_of_view(const char *name, struct kml_view bytes)
{
    struct kml_source *s = KML_NEW(struct kml_source);
    s->name = kml_strdup(name);
    s->file = -1;
    s->at = bytes.data;
    s->left = bytes.size;
    start_unpacking(s);
    return s;
}

/* The unpacked size stands in the last four bytes (RFC 1952 2.3.1). Of several members it is the last one's
 * only. */
static uint64_t claimed_size(const uint8_t *packed, size_t size)
{
    const uint8_t *end = packed + size - 4;
    uint64_t claimed =
        (uint64_t)end[0] | (uint64_t)end[1] << 8 | (uint64_t)end[2] << 16 | (uint64_t)end[3] << 24;
    return claimed <= (uint64_t)size * EXPANSION ? claimed : 0;
}

static uint8_t *unpack_whole(const uint8_t *packed, size_t size, size_t *unpacked)
{
    uint64_t claimed = claimed_size(packed, size);
    uint8_t *to = claimed == 0 ? NULL : kml_try_alloc(claimed);
    struct libdeflate_decompressor *d = to == NULL ? NULL : libdeflate_alloc_decompressor();
    size_t used = 0;
    bool good =
        d != NULL &&
        libdeflate_gzip_decompress_ex(d, packed, size, to, claimed, &used, unpacked) == LIBDEFLATE_SUCCESS &&
        used == size && *unpacked == claimed;
    libdeflate_free_decompressor(d);
    if (!good) {
        kml_free(to);
        return NULL;
    }
    return to;
}

/*
 * The usual case made fast: one member, of moderate size, undamaged. Anything else is left to the reader in
 * pieces, which also says what is wrong.
 */
static void try_at_once(struct kml_source *s)
{
    struct stat st;
    if (!has_gzip_magic(s) || fstat(s->file, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size < 18 ||
        (uint64_t)st.st_size > AT_ONCE) {
        return;
    }
    size_t size = (size_t)st.st_size;
    void *packed = mmap(NULL, size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, s->file, 0);
    if (packed == MAP_FAILED) {
        return;
    }
    size_t unpacked = 0;
    s->whole = unpack_whole(packed, size, &unpacked);
    (void)munmap(packed, size);
    if (s->whole != NULL) {
        s->at = s->whole;
        s->left = unpacked;
        s->file_ended = true;
    }
}

static int check_regular(int file, const char *path, struct kml_err *err)
{
    struct stat st;
    if (fstat(file, &st) != 0) {
        return kml_fail_errno(err, errno, "cannot read %s", path);
    }
    if (S_ISDIR(st.st_mode)) {
        return kml_fail(err, KML_INVALID, "%s is a folder, not a data file", path);
    }
    return 0;
}

int kml_source_open(struct kml_source **out, const char *path, struct kml_err *err)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        return kml_fail_errno(err, errno, "cannot open %s", path);
    }
    if (check_regular(file, path, err) != 0) {
        (void)close(file);
        return -1;
    }
    struct kml_source *s = KML_NEW(struct kml_source);
    s->name = kml_strdup(path);
    s->file = file;
    s->room = kml_alloc(WINDOW);
    if (fill(s, err) != 0) {
        kml_source_close(s);
        return -1;
    }
    try_at_once(s);
    if (s->whole == NULL) {
        start_unpacking(s);
    }
    *out = s;
    return 0;
}

void kml_source_close(struct kml_source *s)
{
    if (s == NULL) {
        return;
    }
    if (s->packed) {
        (void)inflateEnd(&s->inflater);
    }
    if (s->file >= 0) {
        (void)close(s->file);
    }
    kml_free(s->whole);
    kml_free(s->room);
    kml_free(s->name);
    kml_free(s);
}

uint8_t *kml_source_take(struct kml_source *s, size_t size)
{
    uint8_t *block = s->whole;
    if (block == NULL || s->left != size) {
        return NULL;
    }
    memmove(block, s->at, size);
    s->whole = NULL;
    s->at = NULL;
    s->left = 0;
    return block;
}

const char *kml_source_name(const struct kml_source *s)
{
    return s->name;
}

static int read_plain(struct kml_source *s, uint8_t *to, size_t size, size_t *got, struct kml_err *err)
{
    while (*got < size) {
        if (fill(s, err) != 0) {
            return -1;
        }
        if (s->left == 0) {
            return 0;
        }
        size_t part = size - *got < s->left ? size - *got : s->left;
        memcpy(to + *got, s->at, part);
        *got += part;
        s->at += part;
        s->left -= part;
    }
    return 0;
}

static int damaged(const struct kml_source *s, struct kml_err *err)
{
    return kml_fail(err, KML_INVALID, "%s: damaged gzip data (%s); copy the file again", s->name,
                    s->inflater.msg == NULL ? "bad stream" : s->inflater.msg);
}

/* A gzip file may hold several members one after another (RFC 1952 2.2); anything else behind one is an
 * error. */
static int next_member(struct kml_source *s, struct kml_err *err)
{
    s->member_open = false;
    if (fill(s, err) != 0) {
        return -1;
    }
    if (s->left == 0) {
        return 0;
    }
    if (s->at[0] != 0x1f) {
        return kml_fail(err, KML_INVALID, "%s: bytes after the end of the gzip data", s->name);
    }
    if (inflateReset(&s->inflater) != Z_OK) {
        return damaged(s, err);
    }
    s->member_open = true;
    return 0;
}

static unsigned at_most(size_t size)
{
    return size > (1U << 30) ? 1U << 30 : (unsigned)size;
}

/* One call of the inflater: as much as the raw bytes at hand and the room allow. */
static int unpack_some(struct kml_source *s, uint8_t *to, size_t room, size_t *got, struct kml_err *err)
{
    unsigned offered = at_most(s->left);
    unsigned space = at_most(room);
    s->inflater.next_in = s->at;
    s->inflater.avail_in = offered;
    s->inflater.next_out = to;
    s->inflater.avail_out = space;
    int code = inflate(&s->inflater, Z_NO_FLUSH);
    s->at += offered - s->inflater.avail_in;
    s->left -= offered - s->inflater.avail_in;
    *got += space - s->inflater.avail_out;
    if (code == Z_STREAM_END) {
        return next_member(s, err);
    }
    if (code == Z_MEM_ERROR) {
        return kml_fail(err, KML_NO_MEMORY, "%s: no memory to unpack", s->name);
    }
    return code == Z_OK || code == Z_BUF_ERROR ? 0 : damaged(s, err);
}

static int read_packed(struct kml_source *s, uint8_t *to, size_t size, size_t *got, struct kml_err *err)
{
    while (*got < size && s->member_open) {
        if (fill(s, err) != 0) {
            return -1;
        }
        if (s->left == 0) {
            return kml_fail(err, KML_INVALID, "%s: the gzip data ends too early; copy the file again",
                            s->name);
        }
        if (unpack_some(s, to + *got, size - *got, got, err) != 0) {
            return -1;
        }
    }
    return 0;
}

int kml_source_read(struct kml_source *s, void *to, size_t size, size_t *got, struct kml_err *err)
{
    *got = 0;
    return s->packed ? read_packed(s, to, size, got, err) : read_plain(s, to, size, got, err);
}
