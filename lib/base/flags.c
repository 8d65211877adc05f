#include "base/flags.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/parse.h"

/* Where the reading of argv stands. */
struct reader {
    const struct kml_flag *flags;
    uint32_t count;
    int argc;
    char **argv;
    int next;
};

static void list_add(struct kml_flag_list *list, const char *value)
{
    list->values = kml_realloc(list->values, (list->count + 1) * sizeof *list->values);
    list->values[list->count++] = value;
}

static void list_finish(struct kml_flag_list *list)
{
    kml_free(list->values);
    *list = (struct kml_flag_list){NULL, 0};
}

static const struct kml_flag *by_name(const struct reader *r, const char *name, size_t length)
{
    for (uint32_t i = 0; i < r->count; i++) {
        if (strlen(r->flags[i].name) == length && strncmp(r->flags[i].name, name, length) == 0) {
            return &r->flags[i];
        }
    }
    return NULL;
}

static const struct kml_flag *by_letter(const struct reader *r, char letter)
{
    for (uint32_t i = 0; i < r->count; i++) {
        if (r->flags[i].letter != 0 && r->flags[i].letter == letter) {
            return &r->flags[i];
        }
    }
    return NULL;
}

static int unknown(const struct reader *r, const char *arg, size_t length, struct kml_err *err)
{
    kml_auto_free const char **names = KML_NEW_ARRAY(r->count + 1, const char *);
    for (uint32_t i = 0; i < r->count; i++) {
        names[i] = r->flags[i].name;
    }
    names[r->count] = "help";
    kml_auto_free char *word = kml_strndup(arg, length);
    const char *near = strncmp(word, "--", 2) == 0 ? kml_nearest(word + 2, names, r->count + 1) : NULL;
    if (near != NULL) {
        return kml_fail(err, KML_USAGE, "unknown flag %s, did you mean --%s?", word, near);
    }
    return kml_fail(err, KML_USAGE, "unknown flag %s, see --help", word);
}

static int set_bool(const struct kml_flag *flag, const char *value, struct kml_err *err)
{
    bool yes = value == NULL || strcmp(value, "true") == 0;
    if (!yes && strcmp(value, "false") != 0) {
        return kml_fail(err, KML_USAGE, "--%s: \"%s\" is neither true nor false", flag->name, value);
    }
    *(bool *)flag->target = yes;
    return 0;
}

static int set_value(const struct kml_flag *flag, const char *value, struct kml_err *err)
{
    int result = 0;
    switch (flag->kind) {
    case KML_FLAG_TEXT:
        *(const char **)flag->target = value;
        break;
    case KML_FLAG_LIST:
        list_add(flag->target, value);
        break;
    case KML_FLAG_BOOL:
        return set_bool(flag, value, err);
    case KML_FLAG_UINT:
        result = kml_parse_u64(value, flag->target, err);
        break;
    case KML_FLAG_REAL:
        result = kml_parse_real(value, flag->target, err);
        break;
    case KML_FLAG_DURATION:
        result = kml_parse_duration(value, flag->target, err);
        break;
    }
    if (result != 0 && err != NULL) {
        err->code = KML_USAGE; /* a bad number on the command line is the user's, not the input's */
        return kml_wrap(err, "--%s", flag->name);
    }
    return result;
}

/* The value of a flag that needs one: behind "=", or the next argument. */
static int take_value(struct reader *r, const struct kml_flag *flag, const char *joined, struct kml_err *err)
{
    if (flag->kind == KML_FLAG_BOOL || joined != NULL) {
        return set_value(flag, joined, err);
    }
    if (r->next >= r->argc) {
        return kml_fail(err, KML_USAGE, "--%s needs a value: --%s %s", flag->name, flag->name,
                        flag->value == NULL ? "VALUE" : flag->value);
    }
    return set_value(flag, r->argv[r->next++], err);
}

static int read_flag(struct reader *r, const char *arg, bool *help, struct kml_err *err)
{
    if (strcmp(arg, "-h") == 0 || strcmp(arg, "--help") == 0) {
        *help = true;
        return 0;
    }
    bool is_long = arg[1] == '-';
    size_t length = strcspn(arg, "=");
    const struct kml_flag *flag = is_long          ? by_name(r, arg + 2, length - 2)
                                  : arg[2] == '\0' ? by_letter(r, arg[1])
                                                   : NULL;
    if (flag == NULL) {
        return unknown(r, arg, length, err);
    }
    return take_value(r, flag, arg[length] == '=' ? arg + length + 1 : NULL, err);
}

int kml_flags_parse(const struct kml_flag *flags, uint32_t count, int argc, char **argv,
                    struct kml_flag_list *rest, bool *help, struct kml_err *err)
{
    struct reader r = {.flags = flags, .count = count, .argc = argc, .argv = argv, .next = 1};
    *rest = (struct kml_flag_list){NULL, 0};
    *help = false;
    bool ended = false; /* by "--" */
    while (r.next < argc && !*help) {
        const char *arg = argv[r.next++];
        if (ended || arg[0] != '-' || arg[1] == '\0') { /* "-" is a name, by custom that of stdin */
            list_add(rest, arg);
        } else if (strcmp(arg, "--") == 0) {
            ended = true;
        } else if (read_flag(&r, arg, help, err) != 0) {
            return -1;
        }
    }
    return 0;
}

static int left_column(const struct kml_flag *flag, char *out, size_t room)
{
    char letter[8] = "    ";
    if (flag->letter != 0) {
        (void)snprintf(letter, sizeof letter, "-%c, ", flag->letter);
    }
    bool valued = flag->kind != KML_FLAG_BOOL;
    return snprintf(out, room, "  %s--%s%s%s", letter, flag->name, valued ? " " : "",
                    !valued               ? ""
                    : flag->value == NULL ? "VALUE"
                                          : flag->value);
}

void kml_flags_print(const struct kml_flag *flags, uint32_t count)
{
    static const struct kml_flag help = {"help", 'h', KML_FLAG_BOOL, NULL, NULL, "Print this text."};
    char left[96];
    int width = left_column(&help, left, sizeof left);
    for (uint32_t i = 0; i < count; i++) {
        int w = left_column(&flags[i], left, sizeof left);
        width = w > width ? w : width;
    }
    for (uint32_t i = 0; i <= count; i++) {
        const struct kml_flag *flag = i < count ? &flags[i] : &help;
        (void)left_column(flag, left, sizeof left);
        (void)printf("%-*s  %s%s\n", width, left, flag->help,
                     flag->kind == KML_FLAG_LIST ? " Repeatable." : "");
    }
}

void kml_flags_finish(const struct kml_flag *flags, uint32_t count, struct kml_flag_list *rest)
{
    for (uint32_t i = 0; i < count; i++) {
        if (flags[i].kind == KML_FLAG_LIST) {
            list_finish(flags[i].target);
        }
    }
    list_finish(rest);
}
