#include "job/internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

/* Reading the main container out of a pod template. The API server checks the rest; we keep it as it is. */

#define MAX_WORDS 1024 /* of a command, args or env */

/* What is known about the template that is being read. */
struct reading {
    struct kml_job_reader *r;
    const struct kml_job_field *field;
    struct kml_job_template *out;
};

static int refuse(const struct reading *t, const struct kml_node *node, const char *text)
{
    char path[KML_DOC_PATH];
    kml_node_path(node, path);
    kml_job_problem(t->r, node, false, path, KML_INVALID, "%s", text);
    kml_job_mark_bad(t->r, t->field);
    return -1;
}

/* A child that must be of `kind` when it is there; *found is NULL when it is not. */
static int typed_child(const struct reading *t, const struct kml_node *map, const char *key,
                       enum kml_node_kind kind, const struct kml_node **found)
{
    const struct kml_node *child = kml_node_get(map, key);
    *found = NULL;
    if (child == NULL || child->kind == KML_NODE_NULL) {
        return 0;
    }
    if (child->kind != kind) {
        char what[96];
        char text[160];
        kml_job_describe(child, what);
        snprintf(text, sizeof(text), "%s stands here; write a %s", what, kml_node_kind_name(kind));
        return refuse(t, child, text);
    }
    *found = child;
    return 0;
}

static int copy_text(const struct reading *t, const struct kml_node *node, char **out)
{
    *out = kml_job_text(t->r, t->field, node);
    return *out == NULL ? -1 : 0;
}

/* command or args: a list of texts. `count` follows what is owned, so a failure on the way leaks nothing. */
static int read_words(const struct reading *t, const struct kml_node *container, const char *key,
                      char ***list, uint32_t *count)
{
    const struct kml_node *node;
    if (typed_child(t, container, key, KML_NODE_LIST, &node) != 0) {
        return -1;
    }
    if (node == NULL) {
        return 0;
    }
    if (node->count > MAX_WORDS) {
        return refuse(t, node, "the list is too long; write at most 1024 texts");
    }
    *list = KML_NEW_ARRAY(node->count, char *);
    for (uint32_t i = 0; i < node->count; i++) {
        if (node->child[i]->kind != KML_NODE_TEXT) {
            return refuse(t, node->child[i], "this is no text; put it in quotes");
        }
        if (copy_text(t, node->child[i], &(*list)[i]) != 0) {
            return -1;
        }
        (*count)++;
    }
    return 0;
}

static bool is_env_name(const char *name)
{
    return name[0] != '\0' && strchr(name, '=') == NULL;
}

static int read_env_pair(const struct reading *t, const struct kml_node *pair)
{
    const struct kml_node *name;
    const struct kml_node *value;
    if (pair->kind != KML_NODE_MAP) {
        return refuse(t, pair, "this is no map; write {name: NAME, value: \"text\"}");
    }
    if (typed_child(t, pair, "name", KML_NODE_TEXT, &name) != 0 ||
        typed_child(t, pair, "value", KML_NODE_TEXT, &value) != 0) {
        return -1;
    }
    if (name == NULL || !is_env_name(name->text)) {
        return refuse(t, pair, "the variable has no usable name; write {name: NAME, value: \"text\"}");
    }
    if (strncmp(name->text, "KUNAL_", 6) == 0) {
        return refuse(t, name, "names that begin with KUNAL_ belong to Kunal ML; choose another");
    }
    const struct kml_node *from = kml_node_get(pair, "valueFrom");
    struct kml_job_env *env = &t->out->env[t->out->env_count];
    if (copy_text(t, name, &env->name) != 0) {
        return -1;
    }
    t->out->env_count++;
    if (value != NULL) {
        return copy_text(t, value, &env->value);
    }
    if (from == NULL) { /* Kubernetes reads an absent value as the empty text */
        env->value = kml_strdup("");
    } else if (t->r->driver == KML_JOB_LOCAL) {
        char path[KML_DOC_PATH];
        kml_node_path(from, path);
        kml_job_note(t->r, from, path,
                     "only a cluster can resolve it; `kunal run` does not set this variable");
    }
    return 0;
}

static int read_env(const struct reading *t, const struct kml_node *container)
{
    const struct kml_node *node;
    if (typed_child(t, container, "env", KML_NODE_LIST, &node) != 0) {
        return -1;
    }
    if (node == NULL) {
        return 0;
    }
    if (node->count > MAX_WORDS) {
        return refuse(t, node, "the list is too long; write at most 1024 variables");
    }
    t->out->env = KML_NEW_ARRAY(node->count, struct kml_job_env);
    int result = 0;
    for (uint32_t i = 0; i < node->count; i++) {
        result = read_env_pair(t, node->child[i]) != 0 ? -1 : result;
    }
    return result;
}

/* "kunal" if there is one, else the first; NULL when there is none. */
static const struct kml_node *main_container(const struct kml_node *list)
{
    for (uint32_t i = 0; i < list->count; i++) {
        const struct kml_node *name = kml_node_get(list->child[i], "name");
        if (name != NULL && name->kind == KML_NODE_TEXT && strcmp(name->text, "kunal") == 0) {
            return list->child[i];
        }
    }
    return list->count > 0 ? list->child[0] : NULL;
}

static int read_container(const struct reading *t, const struct kml_node *container)
{
    const struct kml_node *image;
    if (container->kind != KML_NODE_MAP) {
        return refuse(t, container, "this is no container; write a map with name and image");
    }
    if (typed_child(t, container, "image", KML_NODE_TEXT, &image) != 0 ||
        (image != NULL && copy_text(t, image, &t->out->image) != 0)) {
        return -1;
    }
    int command = read_words(t, container, "command", &t->out->command, &t->out->command_count);
    int args = read_words(t, container, "args", &t->out->args, &t->out->args_count);
    int env = read_env(t, container);
    return command != 0 || args != 0 || env != 0 ? -1 : 0;
}

struct name_list {
    char text[256];
    size_t size;
};

static void add_name(struct name_list *names, const char *name)
{
    int more = snprintf(names->text + names->size, sizeof(names->text) - names->size, "%s%s",
                        names->size > 0 ? ", " : "", name);
    names->size += more > 0 ? (size_t)more : 0;
    names->size = names->size >= sizeof(names->text) ? sizeof(names->text) - 1 : names->size;
}

static void add_others(struct name_list *names, const struct kml_node *map, const char *const *used,
                       size_t count)
{
    for (uint32_t i = 0; map != NULL && i < map->count; i++) {
        bool is_used = false;
        for (size_t k = 0; map->child[i]->key != NULL && k < count; k++) {
            is_used = is_used || strcmp(map->child[i]->key, used[k]) == 0;
        }
        if (!is_used && map->kind == KML_NODE_MAP) {
            add_name(names, map->child[i]->key);
        }
    }
}

/* `kunal run` starts processes, not pods: it says which fields have no meaning there. */
static void note_unused(const struct reading *t, const struct kml_node *node, const struct kml_node *spec,
                        const struct kml_node *containers, const struct kml_node *container)
{
    static const char *const of_pod[] = {"spec"};
    static const char *const of_spec[] = {"containers"};
    static const char *const of_any[] = {"name", "env", "command", "args"};
    bool starts = t->r->job->model.kind == KML_JOB_MODEL_CUSTOM &&
                  t->field->offset == offsetof(struct kml_job, worker.template);
    struct name_list names = {.size = 0};
    add_others(&names, node, of_pod, KML_COUNT(of_pod));
    add_others(&names, spec, of_spec, KML_COUNT(of_spec));
    add_others(&names, container, of_any, starts ? 4 : 2);
    if (containers->count > 1) {
        add_name(&names, "further containers");
    }
    if (names.size > 0 && t->r->driver == KML_JOB_LOCAL) {
        kml_job_note(t->r, node, t->field->path,
                     "`kunal run` starts processes, not pods, and does not use: %s", names.text);
    }
}

int kml_job_read_template(struct kml_job_reader *r, const struct kml_job_field *field,
                          const struct kml_node *node)
{
    struct reading t = {.r = r, .field = field, .out = kml_job_target(r->job, field)};
    const struct kml_node *spec;
    const struct kml_node *containers;
    if (node->kind != KML_NODE_MAP) {
        return refuse(&t, node, "this is no pod template; write {spec: {containers: [...]}}");
    }
    if (typed_child(&t, node, "spec", KML_NODE_MAP, &spec) != 0 ||
        typed_child(&t, spec, "containers", KML_NODE_LIST, &containers) != 0) {
        return -1;
    }
    const struct kml_node *container = containers == NULL ? NULL : main_container(containers);
    if (container == NULL) {
        return refuse(&t, node, "the template has no container; write {spec: {containers: [{name: kunal}]}}");
    }
    if (read_container(&t, container) != 0) {
        return -1;
    }
    t.out->json = kml_job_json(r, field, node);
    if (t.out->json == NULL) {
        return -1;
    }
    note_unused(&t, node, spec, containers, container);
    return 0;
}
