#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "cli/child.h"
#include "doc/doc.h"

#define TAIL_BYTES 32768

/* The end of the file from `start` on, as text; the first line may be cut. */
static size_t read_tail(const char *path, uint64_t start, char *out, size_t room)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat info;
    size_t got = 0;
    if (fd >= 0 && fstat(fd, &info) == 0 && (uint64_t)info.st_size > start) {
        uint64_t size = (uint64_t)info.st_size;
        uint64_t from = size - start > room - 1 ? size - (room - 1) : start;
        ssize_t n = pread(fd, out, room - 1, (off_t)from);
        got = n > 0 ? (size_t)n : 0;
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    out[got] = '\0';
    return got;
}

/* "CODE: text" as kv_err writes it, without the code. */
static const char *without_code(const char *text)
{
    size_t capitals = strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_");
    return capitals > 0 && strncmp(text + capitals, ": ", 2) == 0 ? text + capitals + 2 : text;
}

static const char *text_of(const struct kml_doc *doc, const char *key)
{
    const struct kml_node *node = kml_node_get(doc->root, key);
    return node != NULL && node->kind == KML_NODE_TEXT ? node->text : NULL;
}

/* A line of our own log as people would say it. False: not such a line. */
static bool say_json(const char *line, char *out, size_t room, bool *error)
{
    struct kml_doc doc;
    if (line[0] != '{') {
        return false;
    }
    kml_doc_init(&doc);
    bool good = kml_doc_read(&doc, "log", kml_view_str(line), NULL) == 0;
    const char *message = good ? text_of(&doc, "message") : NULL;
    const char *cause = good ? text_of(&doc, "error") : NULL;
    const char *level = good ? text_of(&doc, "level") : NULL;
    *error = level != NULL && strcmp(level, "error") == 0;
    good = message != NULL;
    if (good) {
        (void)snprintf(out, room, "%s%s%s", message, cause == NULL ? "" : ": ",
                       cause == NULL ? "" : without_code(cause));
    }
    kml_doc_finish(&doc);
    return good;
}

static void make_clean(char *text)
{
    for (char *c = text; *c != '\0'; c++) {
        *c = (unsigned char)*c < 0x20 || *c == 0x7f ? ' ' : *c;
    }
}

void kml_child_last_words(const char *log, uint64_t start, char *out, size_t room)
{
    kml_auto_free char *tail = KML_NEW_ARRAY(TAIL_BYTES, char);
    size_t size = read_tail(log, start, tail, TAIL_BYTES);
    out[0] = '\0';
    /* From the end: the first error decides; without one, the very last line. */
    while (size > 0) {
        while (size > 0 && tail[size - 1] == '\n') {
            tail[--size] = '\0';
        }
        while (size > 0 && tail[size - 1] != '\n') {
            size--;
        }
        const char *line = tail + size;
        kml_auto_free char *words = KML_NEW_ARRAY(room, char);
        bool error = false;
        bool json = say_json(line, words, room, &error);
        if (!json) {
            (void)snprintf(words, room, "%s", line);
        }
        if (line[0] != '\0' && (out[0] == '\0' || error)) {
            (void)snprintf(out, room, "%s", words);
        }
        if (error) {
            break;
        }
    }
    make_clean(out);
}
