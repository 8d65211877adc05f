# shellcheck shell=bash disable=SC2154
# The certificates of the cluster, made anew for each `up`: a CA, the front proxy's own CA, one certificate
# for each role.

make_ca() { # FILE NAME
    openssl ecparam -name prime256v1 -genkey -noout -out "$1.key"
    openssl req -x509 -new -key "$1.key" -days 3650 -subj "/CN=$2" -out "$1.crt" \
        -addext basicConstraints=critical,CA:TRUE \
        -addext keyUsage=critical,keyCertSign,cRLSign,digitalSignature
}

make_certificate() { # FILE SUBJECT CA USAGE [NAMES]
    local names=${5:+subjectAltName=$5}
    openssl ecparam -name prime256v1 -genkey -noout -out "$1.key"
    openssl req -new -key "$1.key" -subj "$2" -out "$1.csr"
    openssl x509 -req -in "$1.csr" -CA "$3.crt" -CAkey "$3.key" -set_serial "0x$(openssl rand -hex 16)" \
        -days 3650 -out "$1.crt" -extfile /dev/stdin 2>/dev/null <<END
basicConstraints=CA:FALSE
keyUsage=critical,digitalSignature
extendedKeyUsage=$4
$names
END
    rm "$1.csr"
}

# Written by hand: four runs of `kubectl config` for each of them would take longer than the whole API server.
make_kubeconfig() { # FILE
    cat >"$1.kubeconfig" <<END
apiVersion: v1
kind: Config
current-context: kunal
contexts: [{name: kunal, context: {cluster: kunal, user: $1}}]
clusters:
- name: kunal
  cluster: {server: "https://$control_ip:6443", certificate-authority-data: $(base64 -w 0 ca.crt)}
users:
- name: $1
  user: {client-certificate-data: $(base64 -w 0 "$1.crt"), client-key-data: $(base64 -w 0 "$1.key")}
END
}

make_client() { # FILE SUBJECT
    make_certificate "$1" "$2" ca clientAuth
    make_kubeconfig "$1"
}

make_pki() { # NODES
    local n name api_names
    mkdir -p "$pki"
    cd "$pki" || return
    make_ca ca kunal-cluster-ca
    make_ca front-proxy-ca kunal-cluster-front-proxy-ca
    openssl genrsa -out service-account.key 2048 2>/dev/null
    openssl rsa -in service-account.key -pubout -out service-account.pub 2>/dev/null
    api_names=DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc
    api_names+=,DNS:kubernetes.default.svc.cluster.local,IP:127.0.0.1
    api_names+=,IP:$shell_ip,IP:$control_ip,IP:$service_first_ip
    make_certificate apiserver /CN=kube-apiserver ca serverAuth "$api_names"
    make_certificate metrics-server /CN=metrics-server ca serverAuth DNS:metrics-server.kube-system.svc
    make_certificate apiserver-to-kubelet /O=system:masters/CN=kube-apiserver-kubelet-client ca clientAuth
    make_certificate front-proxy /CN=front-proxy-client front-proxy-ca clientAuth
    make_client admin /O=system:masters/CN=kunal-admin
    make_client addons /O=system:masters/CN=kunal-addons # the audit log tells them from people
    make_client controller-manager /CN=system:kube-controller-manager
    make_client scheduler /CN=system:kube-scheduler
    make_client proxy /CN=system:kube-proxy
    for ((n = 1; n <= $1; n++)); do
        name=$(node_name "$n")
        make_client "$name" "/O=system:nodes/CN=system:node:$name"
        # From the same CA and with the node's address, so that metrics-server needs no insecure flag.
        make_certificate "$name-serving" "/O=system:nodes/CN=system:node:$name" ca serverAuth \
            "DNS:$name,IP:$(node_ip "$n")"
    done
}
