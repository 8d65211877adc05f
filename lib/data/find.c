#include "data/find.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "data/source.h"

/* By split: the names that are looked for, each also with ".gz". */
static const struct {
    enum kml_data_format format;
    const char *name[3];
} known[] = {
    {KML_FORMAT_IDX, {"train-images-idx3-ubyte", NULL, "t10k-images-idx3-ubyte"}},
    {KML_FORMAT_IDX, {"train-images.idx3-ubyte", NULL, "t10k-images.idx3-ubyte"}},
    {KML_FORMAT_CSV, {"train.csv", "validation.csv", "test.csv"}},
    {KML_FORMAT_TSV, {"train.tsv", "validation.tsv", "test.tsv"}},
};

/* "folder/name" or "folder/name.gz", whichever exists; NULL: neither. */
static char *existing(const char *folder, const char *name)
{
    char *path = kml_format("%s/%s", folder, name);
    if (access(path, F_OK) == 0) {
        return path;
    }
    char *packed = kml_format("%s.gz", path);
    kml_free(path);
    if (access(packed, F_OK) == 0) {
        return packed;
    }
    kml_free(packed);
    return NULL;
}

static char *replaced(const char *text, const char *from, const char *to)
{
    const char *at = NULL;
    for (const char *next = strstr(text, from); next != NULL; next = strstr(next + 1, from)) {
        at = next; /* the last one: a folder's name may hold the word, too */
    }
    if (at == NULL) {
        return kml_strdup(text);
    }
    return kml_format("%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

/* The labels of ".../train-images-idx3-ubyte.gz" are in ".../train-labels-idx1-ubyte", packed or not. */
static int find_labels(struct kml_found *found, struct kml_err *err)
{
    const char *name = base_name(found->file);
    if (strstr(name, "images") == NULL) {
        return kml_fail(err, KML_INVALID,
                        "%s: an IDX file of samples has \"images\" in its name, so that its labels can be "
                        "found beside it",
                        found->file);
    }
    kml_auto_free char *labels = replaced(name, "images", "labels");
    for (char digit = '2'; digit <= '4'; digit++) {
        char idx[] = {'i', 'd', 'x', digit, '\0'};
        char *next = replaced(labels, idx, "idx1");
        kml_free(labels);
        labels = next;
    }
    size_t length = strlen(labels);
    if (length > 3 && strcmp(labels + length - 3, ".gz") == 0) {
        labels[length - 3] = '\0';
    }
    kml_auto_free char *folder = kml_strndup(found->file, (size_t)(name - found->file) - 1);
    found->labels = existing(folder, labels);
    if (found->labels == NULL) {
        return kml_fail(err, KML_NOT_FOUND, "%s has no labels: %s/%s is not there, neither is %s.gz",
                        found->file, folder, labels, labels);
    }
    return 0;
}

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text);
    size_t size = strlen(end);
    return length >= size && strcmp(text + length - size, end) == 0;
}

/* Two zero bytes begin an IDX file and no text file; text is told apart by name, and a tab in the first
 * bytes. */
static int detect(const char *path, enum kml_data_format *format, struct kml_err *err)
{
    if (ends_with(path, ".csv") || ends_with(path, ".csv.gz")) {
        *format = KML_FORMAT_CSV;
        return 0;
    }
    if (ends_with(path, ".tsv") || ends_with(path, ".tsv.gz")) {
        *format = KML_FORMAT_TSV;
        return 0;
    }
    struct kml_source *source;
    if (kml_source_open(&source, path, err) != 0) {
        return -1;
    }
    uint8_t head[512];
    size_t got;
    int code = kml_source_read(source, head, sizeof(head), &got, err);
    kml_source_close(source);
    if (code != 0) {
        return -1;
    }
    if (got == 0) {
        return kml_fail(err, KML_INVALID, "%s: the file is empty", path);
    }
    if (got >= 2 && head[0] == 0 && head[1] == 0) {
        *format = KML_FORMAT_IDX;
    } else if (memchr(head, 0, got) != NULL) {
        return kml_fail(err, KML_INVALID, "%s: neither IDX (wrong magic number) nor text", path);
    } else {
        *format = memchr(head, '\t', got) != NULL ? KML_FORMAT_TSV : KML_FORMAT_CSV;
    }
    return 0;
}

static int take_named(struct kml_found *found, const char *folder, const char *name,
                      enum kml_data_format format, struct kml_err *err)
{
    found->file = existing(folder, name);
    if (found->file == NULL) {
        return kml_fail(err, KML_NOT_FOUND, "%s/%s is not there", folder, name);
    }
    found->format = format;
    if (format == KML_FORMAT_AUTO && detect(found->file, &found->format, err) != 0) {
        return -1;
    }
    return found->format == KML_FORMAT_IDX ? find_labels(found, err) : 0;
}

static int take_known(struct kml_found *found, const char *folder, enum kml_split_kind split,
                      enum kml_data_format format, struct kml_err *err)
{
    for (size_t i = 0; i < KML_COUNT(known); i++) {
        const char *name = known[i].name[split];
        if (name == NULL || (format != KML_FORMAT_AUTO && format != known[i].format)) {
            continue;
        }
        found->file = existing(folder, name);
        if (found->file != NULL) {
            found->format = known[i].format;
            return found->format == KML_FORMAT_IDX ? find_labels(found, err) : 0;
        }
    }
    if (split != KML_SPLIT_TRAIN) {
        return 0;
    }
    return kml_fail(err, KML_NOT_FOUND,
                    "%s holds no training set that is found by itself (train-images-idx3-ubyte, "
                    "train.csv, train.tsv, each also with .gz); set dataset.train",
                    folder);
}

/* A path to one file is its folder with that file as the training set. */
static int find_in_file(struct kml_found *found, const char *path, enum kml_split_kind split,
                        const char *name, enum kml_data_format format, struct kml_err *err)
{
    if (split != KML_SPLIT_TRAIN && name == NULL) {
        return 0;
    }
    if (split == KML_SPLIT_TRAIN && name != NULL) {
        return kml_fail(err, KML_INVALID, "%s is a file, so there is no %s under it", path, name);
    }
    const char *base = base_name(path);
    kml_auto_free char *folder = base == path ? kml_strdup(".") : kml_strndup(path, (size_t)(base - path));
    return take_named(found, folder, name == NULL ? base : name, format, err);
}

int kml_data_find(struct kml_found *found, const char *path, enum kml_split_kind split, const char *name,
                  enum kml_data_format format, struct kml_err *err)
{
    *found = (struct kml_found){.format = format};
    struct stat st;
    int code;
    if (stat(path, &st) != 0) {
        return kml_fail_errno(err, errno, "cannot open the data set %s", path);
    }
    if (!S_ISDIR(st.st_mode)) {
        code = find_in_file(found, path, split, name, format, err);
    } else if (access(path, R_OK | X_OK) != 0) {
        return kml_fail_errno(err, errno, "cannot read the folder %s", path);
    } else {
        code = name != NULL ? take_named(found, path, name, format, err)
                            : take_known(found, path, split, format, err);
    }
    if (code != 0) {
        kml_found_finish(found);
    }
    return code;
}

void kml_found_finish(struct kml_found *found)
{
    kml_free(found->file);
    kml_free(found->labels);
    *found = (struct kml_found){0};
}
