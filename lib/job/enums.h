#ifndef KML_JOB_ENUMS_H
#define KML_JOB_ENUMS_H

/*
 * The manifest's enumerations: C name, name in the manifest, NOW or LATER (valid, but "not supported yet").
 * The enums, the reader, the writer and the CRD all come from these lines; to lift a LATER, change that word.
 */
#define KML_JOB_MODELS(X)                                                                                    \
    X(MODEL_LINEAR, "Linear", NOW)                                                                           \
    X(MODEL_LOGISTIC, "Logistic", NOW)                                                                       \
    X(MODEL_SOFTMAX, "Softmax", NOW)                                                                         \
    X(MODEL_MLP, "MLP", NOW)                                                                                 \
    X(MODEL_CNN, "CNN", LATER)                                                                               \
    X(MODEL_CUSTOM, "Custom", NOW)

#define KML_JOB_ACTIVATIONS(X)                                                                               \
    X(ACTIVATION_RELU, "ReLU", NOW)                                                                          \
    X(ACTIVATION_TANH, "Tanh", NOW)                                                                          \
    X(ACTIVATION_SIGMOID, "Sigmoid", NOW)

#define KML_JOB_FORMATS(X)                                                                                   \
    X(FORMAT_AUTO, "Auto", NOW)                                                                              \
    X(FORMAT_IDX, "IDX", NOW)                                                                                \
    X(FORMAT_CSV, "CSV", NOW)                                                                                \
    X(FORMAT_TSV, "TSV", NOW)                                                                                \
    X(FORMAT_LIBSVM, "LibSVM", LATER)                                                                        \
    X(FORMAT_NPY, "NPY", LATER)

/* Auto is what an absent field means: the data's format decides. */
#define KML_JOB_STANDARDIZES(X)                                                                              \
    X(STANDARDIZE_AUTO, "Auto", NOW)                                                                         \
    X(STANDARDIZE_NONE, "None", NOW)                                                                         \
    X(STANDARDIZE_SCALE255, "Scale255", NOW)                                                                 \
    X(STANDARDIZE_MEANSTD, "MeanStd", NOW)

#define KML_JOB_SHUFFLES(X)                                                                                  \
    X(SHUFFLE_GLOBAL, "Global", NOW)                                                                         \
    X(SHUFFLE_SHARD, "Shard", NOW)                                                                           \
    X(SHUFFLE_NONE, "None", NOW)

#define KML_JOB_OPTIMIZERS(X)                                                                                \
    X(OPTIMIZER_SGD, "SGD", NOW)                                                                             \
    X(OPTIMIZER_MOMENTUM, "Momentum", NOW)                                                                   \
    X(OPTIMIZER_NESTEROV, "Nesterov", NOW)                                                                   \
    X(OPTIMIZER_ADAGRAD, "Adagrad", NOW)                                                                     \
    X(OPTIMIZER_ADAM, "Adam", NOW)                                                                           \
    X(OPTIMIZER_ADAMW, "AdamW", NOW)

#define KML_JOB_SCHEDULES(X)                                                                                 \
    X(SCHEDULE_CONSTANT, "Constant", NOW)                                                                    \
    X(SCHEDULE_STEP, "Step", NOW)                                                                            \
    X(SCHEDULE_COSINE, "Cosine", NOW)

#define KML_JOB_NONFINITES(X)                                                                                \
    X(NONFINITE_REFUSE, "Refuse", NOW)                                                                       \
    X(NONFINITE_FAIL, "Fail", NOW)

#define KML_JOB_METRICS(X)                                                                                   \
    X(METRIC_ACCURACY, "Accuracy", NOW)                                                                      \
    X(METRIC_LOSS, "Loss", NOW)

#define KML_JOB_RESUMES(X)                                                                                   \
    X(RESUME_AUTO, "Auto", NOW)                                                                              \
    X(RESUME_NEVER, "Never", NOW)

#define KML_JOB_SYNCS(X)                                                                                     \
    X(SYNC_BSP, "BSP", NOW)                                                                                  \
    X(SYNC_ASP, "ASP", NOW)                                                                                  \
    X(SYNC_SSP, "SSP", NOW)                                                                                  \
    X(SYNC_LSP, "LSP", NOW)                                                                                  \
    X(SYNC_HYBRID, "Hybrid", LATER)

#define KML_JOB_PAYLOADS(X)                                                                                  \
    X(PAYLOAD_GRADIENT, "Gradient", NOW)                                                                     \
    X(PAYLOAD_MODEL, "Model", LATER)

#define KML_JOB_STRATEGIES(X)                                                                                \
    X(STRATEGY_STATIC, "Static", NOW)                                                                        \
    X(STRATEGY_LEASED, "Leased", NOW)                                                                        \
    X(STRATEGY_WLBS, "WLBS", NOW)                                                                            \
    X(STRATEGY_AUTOWLBS, "AutoWLBS", NOW)

#define KML_JOB_FORMS(X)                                                                                     \
    X(FORM_BATCH, "Batch", NOW)                                                                              \
    X(FORM_SHARD, "Shard", LATER)

#define KML_JOB_DAMPINGS(X)                                                                                  \
    X(DAMPING_INVERSE, "Inverse", NOW)                                                                       \
    X(DAMPING_NONE, "None", NOW)

#define KML_JOB_CODINGS(X)                                                                                   \
    X(CODING_NONE, "None", NOW)                                                                              \
    X(CODING_AUTO, "Auto", NOW)                                                                              \
    X(CODING_TRIGONOMETRIC, "Trigonometric", NOW)                                                            \
    X(CODING_FRACTIONAL, "FractionalRepetition", NOW)

#define KML_JOB_OUTPUTS(X)                                                                                   \
    X(OUTPUT_SAFETENSORS, "Safetensors", NOW)                                                                \
    X(OUTPUT_ONNX, "ONNX", LATER)

#define KML_JOB_CLEANS(X)                                                                                    \
    X(CLEAN_ALL, "All", NOW)                                                                                 \
    X(CLEAN_RUNNING, "Running", NOW)                                                                         \
    X(CLEAN_NONE, "None", NOW)

#define KML_JOB_MANAGERS(X)                                                                                  \
    X(MANAGER_KUNAL, "kunal.ml/kunal-operator", NOW)                                                         \
    X(MANAGER_MULTIKUEUE, "kueue.x-k8s.io/multikueue", NOW)

#define KML_JOB_SCOPES(X)                                                                                    \
    X(SCOPE_POD, "Pod", NOW)                                                                                 \
    X(SCOPE_JOB, "Job", LATER)

#define KML_JOB_RESTARTS(X)                                                                                  \
    X(RESTART_ALWAYS, "Always", NOW)                                                                         \
    X(RESTART_ONFAILURE, "OnFailure", NOW)                                                                   \
    X(RESTART_NEVER, "Never", NOW)                                                                           \
    X(RESTART_EXITCODE, "ExitCode", NOW)

#define KML_JOB_TRANSPORTS(X)                                                                                \
    X(TRANSPORT_MTLS, "MTLS", NOW)                                                                           \
    X(TRANSPORT_PLAINTEXT, "Plaintext", NOW)

#define KML_JOB_ENUM(name, text, built) KML_JOB_##name,

enum kml_job_model { KML_JOB_MODELS(KML_JOB_ENUM) KML_JOB_MODEL_COUNT };
enum kml_job_activation { KML_JOB_ACTIVATIONS(KML_JOB_ENUM) KML_JOB_ACTIVATION_COUNT };
enum kml_job_format { KML_JOB_FORMATS(KML_JOB_ENUM) KML_JOB_FORMAT_COUNT };
enum kml_job_standardize { KML_JOB_STANDARDIZES(KML_JOB_ENUM) KML_JOB_STANDARDIZE_COUNT };
enum kml_job_shuffle { KML_JOB_SHUFFLES(KML_JOB_ENUM) KML_JOB_SHUFFLE_COUNT };
enum kml_job_optimizer { KML_JOB_OPTIMIZERS(KML_JOB_ENUM) KML_JOB_OPTIMIZER_COUNT };
enum kml_job_schedule { KML_JOB_SCHEDULES(KML_JOB_ENUM) KML_JOB_SCHEDULE_COUNT };
enum kml_job_nonfinite { KML_JOB_NONFINITES(KML_JOB_ENUM) KML_JOB_NONFINITE_COUNT };
enum kml_job_metric { KML_JOB_METRICS(KML_JOB_ENUM) KML_JOB_METRIC_COUNT };
enum kml_job_resume { KML_JOB_RESUMES(KML_JOB_ENUM) KML_JOB_RESUME_COUNT };
enum kml_job_sync { KML_JOB_SYNCS(KML_JOB_ENUM) KML_JOB_SYNC_COUNT };
enum kml_job_payload { KML_JOB_PAYLOADS(KML_JOB_ENUM) KML_JOB_PAYLOAD_COUNT };
enum kml_job_strategy { KML_JOB_STRATEGIES(KML_JOB_ENUM) KML_JOB_STRATEGY_COUNT };
enum kml_job_form { KML_JOB_FORMS(KML_JOB_ENUM) KML_JOB_FORM_COUNT };
enum kml_job_damping { KML_JOB_DAMPINGS(KML_JOB_ENUM) KML_JOB_DAMPING_COUNT };
enum kml_job_coding { KML_JOB_CODINGS(KML_JOB_ENUM) KML_JOB_CODING_COUNT };
enum kml_job_output { KML_JOB_OUTPUTS(KML_JOB_ENUM) KML_JOB_OUTPUT_COUNT };
enum kml_job_clean { KML_JOB_CLEANS(KML_JOB_ENUM) KML_JOB_CLEAN_COUNT };
enum kml_job_manager { KML_JOB_MANAGERS(KML_JOB_ENUM) KML_JOB_MANAGER_COUNT };
enum kml_job_scope { KML_JOB_SCOPES(KML_JOB_ENUM) KML_JOB_SCOPE_COUNT };
enum kml_job_restart { KML_JOB_RESTARTS(KML_JOB_ENUM) KML_JOB_RESTART_COUNT };
enum kml_job_transport { KML_JOB_TRANSPORTS(KML_JOB_ENUM) KML_JOB_TRANSPORT_COUNT };

#endif
