// The view of a job, from the scheduler node's list of nodes.
#pragma once

#include "job/view.h"
#include "ps/membership.h"

namespace bs::node {

// Hosts stand in the order of the list.  A node counts for the host where its place was at the
// beginning, also after another process has taken that place.  All loopback addresses are the same
// host.
job::View ViewOf(const ps::View& listed, job::Role role);

}  // namespace bs::node
